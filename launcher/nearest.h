// "Did you mean": the candidate nearest to what a person typed.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace headsweep {

// The candidate with the smallest edit distance (insertions, deletions, replacements and swaps of
// neighbours), or "" when none is near: more than a third of the longer word, but at least two edits, is far.
std::string NearestName(std::string_view typed, const std::vector<std::string>& candidates);

}  // namespace headsweep
