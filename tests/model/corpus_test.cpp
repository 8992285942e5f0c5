// The fuzzer's corpus, without the fuzzer.
#include "fuzz/bytes.hpp"
#include "support/machines.hpp"

namespace model_corpus_test {

TEST_CASE("the inputs that the fuzzer found are played again") {
    std::size_t played = 0;
    const auto folder = std::filesystem::path{__FILE__}.parent_path().parent_path() / "fuzz" / "corpus";
    for (const auto& entry : std::filesystem::directory_iterator{folder}) {
        CAPTURE(entry.path().string());
        std::ifstream file{entry.path(), std::ios::binary};
        const std::string text{std::istreambuf_iterator<char>{file}, {}};
        const std::vector<std::uint8_t> bytes(text.begin(), text.end());
        CHECK_NOTHROW(test::play(bytes));
        played += 1;
    }
    CHECK(played > 0);
}
} // namespace model_corpus_test
