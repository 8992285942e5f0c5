// A tag whose first save fails, because the directory of its FileBackup is gone.
#pragma once

#include "support/machines.hpp"

namespace test {

/// Returns an arena of a new tag with a FileBackup in a directory that is gone.
template <class Saver>
memsaver::Arena arena_in_vanished_directory(Saver& saver, const char* tag,
                                            memsaver::Refresh refresh = memsaver::Refresh::every_pause) {
    const std::string directory =
        (std::filesystem::temp_directory_path() / ("memsaver_vanished_" + std::to_string(::getpid()))).string();
    std::filesystem::create_directory(directory);
    memsaver::Arena arena = saver.arena(tag, memsaver::FileBackup{.directory = directory, .refresh = refresh});
    std::filesystem::remove(directory);
    return arena;
}
} // namespace test
