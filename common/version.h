// What this build calls itself, to clients and in logs.
#ifndef RELAY_COMMON_VERSION_H
#define RELAY_COMMON_VERSION_H

#define RELAY_VERSION "0.1.0"

#endif
