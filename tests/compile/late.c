// The implementation behind a system header: fine where that has not frozen strict C (-std=gnu99), else an #error with the cure.
#include <stdio.h>
#define FRISBEE_IMPLEMENTATION
#include "frisbee.h"
