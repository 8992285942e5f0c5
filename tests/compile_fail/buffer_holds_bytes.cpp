// error: must be trivially copyable
// Objects in device memory are never constructed or destroyed.
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
