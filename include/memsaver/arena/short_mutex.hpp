// A mutex for critical sections of some ten nanoseconds.
#pragma once

#include <mutex>

namespace memsaver::inline v0_1 {

/// Tries for about as long as a holder needs before it sleeps: putting a thread to sleep and waking it costs a hundred
/// times what it waits for. Lockable, as std::mutex is.
class ShortMutex {
public:
    void lock() {
        for (int i = 0; i < 200; ++i) {
            if (mutex_.try_lock()) return;
            relax();
        }
        mutex_.lock();
    }
    bool try_lock() { return mutex_.try_lock(); }
    void unlock() { mutex_.unlock(); }

private:
    static void relax() noexcept {
#if defined(__x86_64__) || defined(__i386__)
        __builtin_ia32_pause();
#endif
    }

    std::mutex mutex_;
};

} // namespace memsaver::inline v0_1
