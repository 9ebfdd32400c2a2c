/* What the cards and the driver of this machine can do, found by trying it. */
#ifndef GAP_MACHINE_H
#define GAP_MACHINE_H

/* A few lines for each card.  A context is opened on each, so it takes a moment and some hundred MiB of each card. */
void machine_print(void);
/* One JSON object, to be freed; NULL: no host memory. */
char *machine_json(void);

#endif
