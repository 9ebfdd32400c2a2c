/* What the trials depend on besides history, setting and cap: the code that made them. */
#ifndef GAP_TUNE_MODEL_H
#define GAP_TUNE_MODEL_H

/* SHA-256 of the sources of the allocator, the simulated card, the readers and the replay; made when they are built (model.cmake). */
extern const char gap__tune_model[];

#endif
