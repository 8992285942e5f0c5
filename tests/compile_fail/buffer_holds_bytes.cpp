// error: copied byte by byte
// Nobody constructs or destroys what lies in device memory.
#include "memsaver/saver/buffer.hpp"

#include <string>

void holder() {
#ifndef MEMSAVER_CONTROL
    const memsaver::Buffer<std::string> buffer;
#else
    const memsaver::Buffer<char> buffer;
#endif
    (void)buffer.data();
}
