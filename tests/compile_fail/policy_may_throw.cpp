// error: resumed\(\).*(is not .*noexcept|may throw)
// few: the method is named
// A policy whose slot's `resumed` is not noexcept.
#include "memsaver/saver/saver.hpp"

#include <cstddef>
#include <cstdint>
#include <string_view>

struct Slot {
    void prepare(const memsaver::LiveSet&) {}
    memsaver::Ticket save(const memsaver::LiveSet&) { return {}; }
    memsaver::Ticket restore(const memsaver::LiveSet&) { return {}; }
    void resumed() RIGHT(noexcept) {}
    void forget(std::uint64_t) noexcept {}
    void invalidate() noexcept {}
    std::size_t backed_up_bytes() const noexcept { return 0; }
};

struct Policy {
    bool operator==(const Policy&) const = default;
    std::string_view name() const noexcept { return "mine"; }
    Slot open(const memsaver::AnyDriver&) const { return {}; }
};

void user(memsaver::MemorySaver<memsaver::AnyDriver>& saver) { (void)saver.arena("mine", Policy{}); }
