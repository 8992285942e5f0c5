// error: no matching (member )?function|could not convert|no viable conversion|no known conversion
// A list of two names where one tag is expected: as iterators of one text, it would be undefined behavior.
#include "memsaver/saver/saver.hpp"

void user(memsaver::MemorySaver<>& saver) { (void)saver.arena(WRONG({"a", "b"}) RIGHT("a")); }
