// The allocator of the `firmware` check in symbols.sh.
#include <stddef.h>
void *my_malloc(size_t size);
void *my_realloc(void *block, size_t size);
void my_free(void *block);
