// error: unmap
// few: the method is named
// A driver without `unmap`.
#define UNMAP
#include "whole_driver.hpp"

#include "memsaver/saver/saver.hpp"

void user() { const memsaver::MemorySaver saver{memsaver::WholeDriver{}}; }
