// An exception from either library is caught by its type here.
#include <memsaver/memsaver.hpp>

namespace first {
void fail();
}
namespace second {
void fail();
}

namespace {

bool caught_by_type(void (*fail)()) {
    try {
        fail();
    } catch (const memsaver::OutOfMemory& error) {
        return error.status().code == 2;
    } catch (...) {
    }
    return false;
}

} // namespace

int main() { return caught_by_type(first::fail) && caught_by_type(second::fail) ? 0 : 1; }
