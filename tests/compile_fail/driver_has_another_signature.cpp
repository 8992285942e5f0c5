// error: unmap
// few: the method is named
// A driver whose `unmap` takes only an address.
#define UNMAP                                                                                                          \
    Status unmap(Address) const noexcept { return {}; }
#include "whole_driver.hpp"

#include "memsaver/saver/saver.hpp"

void user() { const memsaver::MemorySaver saver{memsaver::WholeDriver{}}; }
