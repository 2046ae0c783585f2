// Must be an #error: static declarations without the implementation.
#define FRISBEE_STATIC
#include "frisbee.h"
