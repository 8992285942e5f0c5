// error: D must be AnyDriver or a driver derived from it
// A machine itself where its handle is wanted.
#include "memsaver/host/host_driver.hpp"
#include "memsaver/saver/saver.hpp"

#ifdef MEMSAVER_CONTROL
void user(const memsaver::HostDriver& driver) { const memsaver::MemorySaver saver{driver}; }
#else
struct Machine;
void user(memsaver::MemorySaver<Machine>& saver) { saver.close(); }
#endif
