// error: D must be AnyDriver or a driver derived from it
// A machine itself where its handle is wanted.
#include "memsaver/saver/saver.hpp"

#ifdef MEMSAVER_CONTROL
void user(memsaver::MemorySaver<memsaver::AnyDriver>& saver) { saver.close(); }
#else
struct Machine;
void user(memsaver::MemorySaver<Machine>& saver) { saver.close(); }
#endif
