// A function of a library that the process may load later: each call looks it up until it is found.
#pragma once

#include <atomic>

namespace tms {

/// `look_up` returns the address of a name, or null. A result is cached; null is not, because programs may call before
/// they load the library.
template <class Function, void* (*look_up)(const char*) noexcept>
class LateFunction {
public:
    constexpr explicit LateFunction(const char* name) noexcept : name_{name} {}

    Function* find() noexcept {
        void* address = found_.load();
        if (address == nullptr) found_ = address = look_up(name_);
        return reinterpret_cast<Function*>(address);
    }

private:
    const char* name_;
    std::atomic<void*> found_{nullptr};
};

} // namespace tms
