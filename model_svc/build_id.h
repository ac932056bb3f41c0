// Which build of this program runs: what the linker wrote into it about its own contents.
#ifndef RELAY_MODEL_SVC_BUILD_ID_H
#define RELAY_MODEL_SVC_BUILD_ID_H

#include <stddef.h>

// The first bytes of the program's GNU build id in hexadecimal, as many as fit, NUL behind; "none" for a program linked
// without one.
void relay_build_id(char *out, size_t cap);

#endif
