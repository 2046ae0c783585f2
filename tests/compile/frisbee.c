// The two-line file that the manual recommends: no other include comes before the implementation.
#define FRISBEE_IMPLEMENTATION
#include "frisbee.h"
