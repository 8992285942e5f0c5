// error: deleted
// A buffer owns its memory alone.
#include "memsaver/saver/buffer.hpp"

void copier(memsaver::Buffer<float>& buffer) {
#ifndef MEMSAVER_CONTROL
    const memsaver::Buffer<float> copy = buffer;
#else
    const memsaver::Buffer<float>& copy = buffer;
#endif
    (void)copy.data();
}
