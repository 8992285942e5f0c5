// error: deleted
// A buffer is the only owner of its memory.
#include "memsaver/saver/buffer.hpp"

void copier(memsaver::Buffer<float>& buffer) {
#ifndef MEMSAVER_CONTROL
    const memsaver::Buffer<float> copy = buffer;
#else
    const memsaver::Buffer<float>& copy = buffer;
#endif
    (void)copy.data();
}
