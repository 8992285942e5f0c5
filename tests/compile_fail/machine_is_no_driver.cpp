// error: D must be AnyDriver or a driver derived from it
// A machine itself where its handle is wanted.
#include "memsaver/saver/saver.hpp"

struct Machine;
void user(memsaver::MemorySaver<WRONG(Machine) RIGHT(memsaver::AnyDriver)>& saver) { saver.close(); }
