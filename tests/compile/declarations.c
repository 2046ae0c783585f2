// The public part alone, twice, before anything else: it must stand by itself.
#include "frisbee.h"
#include "frisbee.h"

frisbee_result declarations_used(frisbee_pool *pool);
frisbee_result declarations_used(frisbee_pool *pool) {
    return frisbee_poll(pool, 0);
}
