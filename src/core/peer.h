/* Memory that other devices may reach. */
#ifndef GAP_PEER_H
#define GAP_PEER_H

#include "core/state.h"

/* Sets the access of everything that is mapped again, after the device has let a peer in.  The driver's error. */
int gap__peer_renew_access(struct gap__policy_state *);

#endif
