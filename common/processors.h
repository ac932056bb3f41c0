// How many processors there are for this process.
#ifndef RELAY_COMMON_PROCESSORS_H
#define RELAY_COMMON_PROCESSORS_H

#include <stdint.h>

// Those of its affinity mask, or less where a control group's quota allows less; at least 1.
uint32_t relay_processors_available(void);

#endif
