// Must be an #error: declared extern, then implemented static.
#include "frisbee.h"
#define FRISBEE_STATIC
#define FRISBEE_IMPLEMENTATION
#include "frisbee.h"
