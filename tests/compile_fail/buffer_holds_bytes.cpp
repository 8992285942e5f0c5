// error: must be trivially copyable
// Objects in device memory are never constructed or destroyed.
#include "memsaver/saver/buffer.hpp"

#include <string>

void holder() {
    const memsaver::Buffer<WRONG(std::string) RIGHT(char)> buffer;
    (void)buffer.data();
}
