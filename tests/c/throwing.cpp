// A callback that breaks its contract by throwing. No exception may leave the library.
#include <memsaver/c.h>
#include <stdexcept>

extern "C" int throwing_hook(void* context, const memsaver_hook_event*) {
    if (context != nullptr) throw std::runtime_error{"thrown by a hook"};
    throw 1;
}
