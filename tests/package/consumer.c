/* What programs that use the C interface do, compiled as C and as C++. Uses a GPU if there is one. */
#include <memsaver/c.h>

#include <stdio.h>

int main(void) {
    memsaver_saver* saver = NULL;
    void* block = NULL;
    const memsaver_result made = memsaver_create(NULL, &saver);
    const bool well = made == MEMSAVER_OK && memsaver_allocate(saver, "consumer", 3000, 0, &block) == MEMSAVER_OK &&
                      memsaver_pause(saver, NULL, 0, NULL, NULL) == MEMSAVER_OK &&
                      memsaver_resume(saver, NULL, 0, NULL, NULL) == MEMSAVER_OK && memsaver_owns(saver, block);
    if (!well) fprintf(stderr, "%s\n", memsaver_last_error());
    memsaver_destroy(saver);
    return well ? 0 : 1;
}
