// error: trim_pool must satisfy the concept Trims
// few: the method is named
// A driver whose optional `trim_pool` is not noexcept.
#include "whole_driver.hpp"

#include "memsaver/saver/saver.hpp"

#ifdef MEMSAVER_CONTROL
#define PROMISE noexcept
#else
#define PROMISE
#endif

struct Part : memsaver::WholeDriver {
    memsaver::Status pool_memory(memsaver::PoolRef, std::size_t&) const noexcept { return {}; }
    memsaver::Status trim_pool(memsaver::PoolRef, std::size_t) const PROMISE { return {}; }
};

void user() { const memsaver::MemorySaver saver{Part{}}; }
