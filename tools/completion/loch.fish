# SPDX-License-Identifier: MIT
# Completion of `loch` for fish. `loch complete` knows the words, so this file needs no change when an option is added.

function __loch_complete
    set -l words (commandline -opc)
    set -l typed (commandline -ct)
    for line in ($words[1] complete $words[2..-1] "$typed" 2>/dev/null)
        if test "$line" = :file
            __fish_complete_path (string replace -r -- '^-.*=' '' "$typed")
        else
            echo $line
        end
    end
end

complete -c loch -f -a '(__loch_complete)'
