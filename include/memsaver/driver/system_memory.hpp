// Host pages and files of drivers that run on this host system.
#pragma once

#include "memsaver/core/handles.hpp"
#include "memsaver/core/status.hpp"

#include <cstddef>

namespace memsaver::inline v0_2 {

namespace detail {

/// Implements the system's part of the concepts HostPages, Files and Sources.
class SystemMemory {
public:
    Status map_host(std::size_t bytes, void*& out) const noexcept;
    Status unmap_host(void* pages, std::size_t bytes) const noexcept;
    Status populate_host(void* pages, std::size_t bytes) const noexcept;
    Status host_available(std::size_t& bytes) const noexcept;

    Status open_file(const char* directory, FileRef& file) const noexcept;
    Status close_file(FileRef file) const noexcept;
    Status write_file(FileRef file, const void* from, std::size_t bytes, std::size_t offset) const noexcept;
    Status read_file(FileRef file, void* to, std::size_t bytes, std::size_t offset) const noexcept;
    Status allocate_file(FileRef file, std::size_t offset, std::size_t bytes) const noexcept;
    Status punch_file(FileRef file, std::size_t offset, std::size_t bytes) const noexcept;

    Status open_source(const char* path, bool direct, FileRef& file) const noexcept;
    Status file_facts(FileRef file, FileFacts& facts) const noexcept;
    Status file_cached(FileRef file, std::size_t bytes, std::size_t offset, bool& yes) const noexcept;
};

} // namespace detail

} // namespace memsaver::inline v0_2

#ifndef MEMSAVER_COMPILED
#include "memsaver/driver/system_memory.ipp"
#endif
