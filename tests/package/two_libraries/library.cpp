// Built twice, as two libraries that know nothing of each other.
#include <memsaver/memsaver.hpp>

namespace LIBRARY {

[[gnu::visibility("default")]] void fail() {
    memsaver::check({.kind = memsaver::StatusKind::out_of_memory, .code = 2, .name = "OUT"}, "take memory");
}

} // namespace LIBRARY
