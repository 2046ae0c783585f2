// Declarations first, a system header, then the implementation in the same unit; twice, and the second does nothing.
#include "frisbee.h"

#include <string.h>

#define FRISBEE_IMPLEMENTATION
#include "frisbee.h"
#include "frisbee.h"
