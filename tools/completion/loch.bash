# SPDX-License-Identifier: MIT
# Completion of `loch` for bash. `loch complete` knows the words, so this file needs no change when an option is added.

_loch()
{
    local line=${COMP_LINE:0:COMP_POINT} tab=$'\t' cut= has_files= path separator typed word words
    # COMP_WORDS is split at ":" and "=", which are parts of words here: "cuda:0", "--device=cpu".
    read -ra words <<<"$line"
    [[ $line == *[[:space:]] ]] && words+=("")
    typed=${words[-1]}
    COMPREPLY=()
    while IFS= read -r word; do
        if [[ $word == :file ]]; then
            has_files=1
        elif [[ -n $word ]]; then
            COMPREPLY+=("${word%%"$tab"*}")
        fi
    done <<<"$("${words[0]}" complete "${words[@]:1}" 2>/dev/null)" # works without /dev/fd, too
    if [[ -n $has_files ]]; then
        path=$typed
        [[ $path == -*=* ]] && path=${path#*=}
        while IFS= read -r word; do
            [[ -n $word ]] && COMPREPLY+=("${typed%"$path"}$word")
        done <<<"$(compgen -f -- "$path")"
        compopt -o filenames 2>/dev/null
    fi

    # Bash replaces what follows the last of its separators.
    for separator in = :; do
        if [[ $COMP_WORDBREAKS == *"$separator"* && $typed == *"$separator"* ]]; then
            word=${typed%"${typed##*"$separator"}"}
            ((${#word} > ${#cut})) && cut=$word
        fi
    done
    COMPREPLY=("${COMPREPLY[@]#"$cut"}")
}
complete -F _loch loch
