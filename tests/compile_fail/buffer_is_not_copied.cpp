// error: deleted
// A buffer is the only owner of its memory.
#include "memsaver/saver/buffer.hpp"

void copier(memsaver::Buffer<float>& buffer) {
    const memsaver::Buffer<float> RIGHT(&) copy = buffer;
    (void)copy.data();
}
