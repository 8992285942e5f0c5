// error: no matching (member )?function|could not convert|no viable conversion|no known conversion
// A list of two names where one tag is expected: as iterators of one text, it would be undefined behavior.
#include "memsaver/saver/saver.hpp"

#ifdef MEMSAVER_CONTROL
#define NAMES "a"
#else
#define NAMES                                                                                                          \
    { "a", "b" }
#endif

void user(memsaver::MemorySaver<>& saver) { (void)saver.arena(NAMES); }
