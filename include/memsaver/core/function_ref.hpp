// A non-owning reference to a function that is called before its caller returns. Unlike std::function, never allocates.
#pragma once

#include <memory>
#include <type_traits>
#include <utility>

namespace memsaver::inline v0_3::detail {

template <class Signature>
class FunctionRef;

/// Must not outlive the argument that it was made from.
template <class R, class... Arguments>
class FunctionRef<R(Arguments...)> {
public:
    template <class F>
    requires(!std::is_same_v<std::remove_cvref_t<F>, FunctionRef>) FunctionRef(F&& function)
    noexcept // NOLINT(google-explicit-constructor): arguments take functions as they are
        : function_{const_cast<void*>(static_cast<const void*>(std::addressof(function)))},
          call_{[](void* borrowed, Arguments... arguments) -> R {
              return (*static_cast<std::remove_reference_t<F>*>(borrowed))(std::forward<Arguments>(arguments)...);
          }} {}

    R operator()(Arguments... arguments) const { return call_(function_, std::forward<Arguments>(arguments)...); }

private:
    void* function_;
    R (*call_)(void*, Arguments...);
};

} // namespace memsaver::inline v0_3::detail
