// Must be an #error: declared and implemented static, then included as if it were not.
#define FRISBEE_STATIC
#define FRISBEE_IMPLEMENTATION
#include "frisbee.h"
#undef FRISBEE_STATIC
#include "frisbee.h"
