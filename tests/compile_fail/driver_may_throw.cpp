// error: unmap\(a, n\).* (is not .*noexcept|may throw)
// few: the method is named
// A driver whose `unmap` is not noexcept.
#define UNMAP                                                                                                          \
    Status unmap(Address, std::size_t) const { return {}; }
#include "whole_driver.hpp"

#include "memsaver/saver/saver.hpp"

void user() { const memsaver::MemorySaver saver{memsaver::WholeDriver{}}; }
