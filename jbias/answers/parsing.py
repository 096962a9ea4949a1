"""Parser of a model's own words: a response such as "D. bird" -> a class, or no answer.

A response to a question with options ("A. airplane B. bear ...") or to an open question ("Which
object is it?") is read by these rules; the first that applies decides:

0. Reasoning never decides: the text of a block such as "<think> ... </think>" is removed, also of a
   block without an end, and all text before an end without a beginning, or before a
   "<CONCLUSION>". Words that `mark_refused` has marked are no answer. Of words that `mark_cut` has
   marked, only their beginning counts: rules 2 to 4 without lists, or a conclusion there ("The
   answer is a bird, becau").
1. An empty response, or a no-answer word such as "None" or "BLOCKED", is no answer. A response that is
   reasoning alone is empty.
2. A letter alone, such as "D", "d", "(D)" or "D.", is its option.
3. A response that begins with an option, a letter and the name of its class ("D. bird", "Answer:
   D. bird"), is this option, whatever explanation follows. If a list of further options follows
   in order ("A: airplane. B: bear. C: ..."), the first is still the answer, and `Parsed.rule` is
   "first of a list". After a list of all options, a conclusion decides ("Answer: D" or "D. bird" at
   the end). After an option or a shorter list, a conclusion that directly names another option
   ("D. bird ... Final answer: H") makes it several options. So it does after the letter of rule 4.
4. A response that begins with a letter ("D. The image shows ..."), or with a letter in bold or alone
   on its line ("**D**", and then an explanation), is this option. What the explanation says about the
   texture, the background or other options does not matter. Only a sentence that states the answer
   itself, and names other classes alone, contradicts the letter: the words after the letter in its
   sentence ("D, a cat"), and statements about the image or its object without words for a texture
   ("D. The image shows a cat.").
5. A conclusion ("The answer is D.", "Therefore, the correct option is G. car.", "I'd go with C.",
   "\\boxed{D}", "<answer>D</answer>") is its option.
6. A response that begins as a refusal ("I'm sorry, I cannot ...", "As an AI ...") is no answer,
   unless a later clause asserts the only class that is named ("..., but it looks like a car").
   A response that says that no option fits is no answer ("None of the options ...", "... does not
   match any of the options listed (A-P)").
7. Otherwise the response is the only class that its words and its letters at the beginnings of
   sentences name.

Options that are denied are not read: "not a bird", "does not look like a bird", "no evidence of a
bird", "C. bicycle, not A. airplane", "not D but H". A denial is a negation, words such as "show" or
"look like", and the option; other words between them end it ("not in color, a bird" is a bird).
A letter and a class that differ are no answer, as are several classes where one is asked for.
The article in "A bird on a wire" is no letter, nor is the "F" of "F-16". Regular plurals ("clocks", "knives") name their class:
captions often give textures in the plural. Synonyms ("airliner", "kitten") are not mapped to classes:
only the names that were offered are read, in any case. A word that contains a class ("carpet",
"bird-like", "bird's-eye view") does not name it; a class that is a word of a longer name is read
("hot dog" is a dog, "bird house" a bird). Forms of letters, such as full-width ones, do not matter.

The version changes whenever a response may be read in another way. Version 2 removes reasoning, and
reads letters that an explanation follows by rule 4, conclusions after options, and words that were
refused or cut off; version 1 compared letters with all classes of the explanation.
"""

import copy
import functools
import itertools
import re
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from jbias.data import class_maps
from jbias.measures import human_answers

VERSION = "2"
CLASSES16 = tuple(class_maps.geirhos16())
_NO_ANSWER_WORDS = frozenset(
    (
        "",
        human_answers.NONE,
        "n/a",
        "n.a.",
        "nan",
        "none",
        "null",
        "nil",
        "-",
        "--",
        "?",
        "no answer",
        "no_answer",
        "no response",
        "no_response",
        "unanswered",
        "unparsable",
        "unparseable",
        "unparsed",
        "unknown",
        "invalid",
    )
)
_REFUSED_WORDS = frozenset(("refused", "refusal", "blocked"))
_REFUSED_MARK, _CUT_MARK = "[refused]", "[cut off]"


class Parsed(NamedTuple):
    """The class that a response names, or the reason why it names none."""

    decision: str  # Name of the class; "" for no answer.
    # "" for a decision; else "empty", "refusal", "cut off", "no option", "several options"
    # or "letter and class differ".
    reason: str
    # How the decision was reached: "letter", "class", "letter and class", "first of a list" or
    # "conclusion"; "" for no answer.
    rule: str = ""
    # "alone" if a letter decides and no stated class confirms it, so that the decision rests on the
    # order of the options; "agrees" or "differs" if a letter and a class are stated; "" otherwise.
    letter: str = ""


def is_no_answer(text: str) -> bool:
    """Return True for a text that stands for no answer in a table, such as "na" or "None"."""
    return _plain_words(text) in _NO_ANSWER_WORDS | _REFUSED_WORDS


def mark_refused(words: str) -> str:
    """Return a model's words marked as a refusal, which the parser never reads as an answer."""
    return f"{_REFUSED_MARK} {words}".rstrip()


def mark_cut(words: str) -> str:
    """Return a model's words marked as cut off, of which the parser reads the beginning only."""
    return f"{words} {_CUT_MARK}"


def _plain_words(text: str) -> str:
    """Return a text in lower case, without spaces, brackets and quotes around it."""
    return text.strip(" \t\r\n<>[]()'\"").casefold()


@functools.lru_cache(2**14)
def match_class(text: str, classes: tuple[str, ...]) -> str:
    """Return the class that a cell of a column of decisions or labels names; "" for none.

    A class is recognised in any case, with spaces around it, and in any Unicode form. If two
    classes differ in these only, their exact names count.
    """
    if text in classes:
        return text
    plain = _plain_class(text)
    matches = [name for name in classes if _plain_class(name) == plain]
    return matches[0] if len(matches) == 1 else ""


def _plain_class(name: str) -> str:
    """Return a class in lower case, without spaces around it and in the Unicode form NFC."""
    return unicodedata.normalize("NFC", name.strip()).casefold()


def letter_options(classes: Sequence[str]) -> dict[str, str]:
    """Return the classes by letter, "A" for the first in alphabetical order; {} beyond 26."""
    if len(classes) > 26:
        return {}
    return {chr(ord("A") + i): name for i, name in enumerate(sorted(classes))}


def parse(
    response: str,
    options: Mapping[str, str] | None = None,
    classes: Sequence[str] = CLASSES16,
) -> Parsed:
    """Return the class that a response names; see the module for the rules.

    response: the model's own words. options: class by capital letter; default: the classes in
    alphabetical order, A to P for the 16 classes; their classes may differ from `classes` in case.
    {}: the question had no letters.
    """
    if options is None:
        options = letter_options(classes)
    names = tuple(classes)
    options = {
        letter: match_class(name, names) or name for letter, name in options.items()
    }
    return _grammar(tuple(options.items()), tuple(classes)).parse(response)


@functools.lru_cache(64)
def _grammar(
    options: tuple[tuple[str, str], ...], classes: tuple[str, ...]
) -> "_Grammar":
    """Return the `_Grammar` of these options and classes."""
    letters = tuple(letter for letter, _ in options)
    grammar = copy.copy(_grammar_of_letters(letters, classes))
    grammar.options = dict(options)
    return grammar


@functools.lru_cache(64)
def _grammar_of_letters(
    letters: tuple[str, ...], classes: tuple[str, ...]
) -> "_Grammar":
    """Return the `_Grammar` of these letters, whose patterns are those of any order of classes.

    The options may be drawn again for each image, and to compile the patterns takes long.
    """
    return _Grammar(dict.fromkeys(letters, ""), classes)


_REFUSAL = re.compile(
    r"\W{0,9}(?:i(?:['’]| a)m (?:(?:very|so|really) )?(?:sorry|unable|afraid|not able)"
    r"|sorry\b|(?:i )?apologi[sz]e|my apologies|unfortunately,? i\b|as an? (?:large )?"
    r"(?:ai|artificial intelligence|language model)\b"
    r"|i (?:can ?not|can['’]?t|could not|couldn['’]?t|am not able to|won['’]?t|do not|don['’]?t)\b"
    r"|(?:there is|there['’]s) no image|no image\b|unable to\b)",
    re.IGNORECASE,
)
_NO_OPTION_FITS = re.compile(
    r"\b(?:none of (?:the|these|those)\b"
    r"|(?:not|n['’]t) (?:match|fit|correspond to|resemble|belong to|show|depict|contain) any of\b"
    r"|not (?:among|listed among|one of) the (?:given |listed |provided )?"
    r"(?:options|choices|categories|classes)\b)",
    re.IGNORECASE,
)
# Words before an answer; the last such place of a response counts.
_CONCLUSION = re.compile(
    r"\b(?:answer|option|choice|category|class)\b[^.:\n]{0,60}?(?:\bis\b|\bbe\b|:)+",
    re.IGNORECASE,
)
_INTRODUCTION = re.compile(
    r"(?:the )?(?:correct |best )?(?:answer|option|choice)(?: is)?\s?:?\s?",
    re.IGNORECASE,
)
_MARKS = " \n\"'*`([#>"
# Beginning of a conclusion, if an option follows directly.
_CHOICE = (
    r"\b(?i:i(?:['’]d| would|['’]ll| will)?(?: have to)? (?:choose|pick|select|go with)"
    r"|i(?:['’]d| would)(?: have to)? (?:say|answer|guess|opt for)|letter(?: is|:))"
)
_NEGATION = (
    r"\b(?:not|no|cannot|never|without|neither|nor|[a-z]{2,6}n['’]t|rather than|instead of"
    r"|nothing|unlikely)\b"
)
# Words between a negation and the option that it denies, as in "does not look like a bird".
_BETWEEN = (
    "really|actually|exactly|quite|necessarily|clearly|truly|even|at all|in fact|seem|seems"
    "|appear|look|looks|resemble|show|depict|contain|include|feature|represent|portray|display"
    "|have|see|find|detect|identify|recogni[sz]e|determine|tell|say|confirm|think|believe"
    "|sure|certain|clear|if|whether|like|to|be|being|as|of|in|this|that|it|there|is|are|it['’]s"
    "|an?|any|the|image|picture|photo|photograph|painting|drawing|kind|type|object|shape|evidence|signs?|traces?|indication|visible"
    "|obvious|recogni[sz]able|actual|real"
)
# Names of blocks of reasoning, in any case.
_REASONING = (
    "think|thinking|thought|thoughts|reasoning|reason|reflection|analysis|scratchpad"
    "|summary|seed:think"
)
# Beginnings and ends of blocks of reasoning, as models write them.
_REASONING_BEGIN = re.compile(
    rf"<(?:{_REASONING})(?:\s[^<>]{{0,200}})?>|◁think▷|\[think\]|<\|begin_of_thought\|>"
    r"|<\|channel\|>\s?(?:analysis|commentary)\s?<\|message\|>|<\|start_thinking\|>",
    re.IGNORECASE,
)
_REASONING_END = re.compile(
    rf"</(?:{_REASONING})\s?>|◁/think▷|\[/think\]|<\|end_of_thought\|>"
    r"|<\|channel\|>\s?final\s?<\|message\|>|<\|end_thinking\|>|<conclusion>",
    re.IGNORECASE,
)
# LLaVA-CoT answers in four blocks; a caption beside the others is no answer.
_STAGES = re.compile(r"<(?:summary|conclusion)>", re.IGNORECASE)
_CAPTION = re.compile(r"<(/?)caption>", re.IGNORECASE)
_REPLACED = (
    # "$\boxed{\text{D}}$" and "<answer>D</answer>" are conclusions.
    (re.compile(r"\\(?:text|textbf|mathrm|mathbf)\{([^{}]{0,200})\}"), r"\1"),
    (re.compile(r"\$?\\boxed\{([^{}]{0,200})\}\$?"), r"\nAnswer: \1\n"),
    (re.compile(r"<answer>|<\|begin_of_box\|>", re.IGNORECASE), "\nAnswer: "),
    (
        re.compile(
            r"</(?:answer|conclusion)>|<\|end_of_box\|>|<\|(?:start|end)_(?:response|text)\|>",
            re.IGNORECASE,
        ),
        "\n",
    ),
    (re.compile("。"), ". "),
    # Other marks for bold letters.
    (re.compile(r"</?(?:b|strong|i|em)>", re.IGNORECASE), "**"),
    (re.compile(r"<br\s?/?>", re.IGNORECASE), "\n"),
    (re.compile(r"(?<!\w)__?([^_\n]{1,200})__?(?!\w)"), r"**\1**"),
)
# A clause may end at a dot, but not at that of "G. car".
_CLAUSE_END = re.compile(r"[;,!?\n]|(?<!\b[A-Z])\.|\b(?:but|however)\b", re.IGNORECASE)
_ASSERTION = re.compile(
    r"\b(?:it|this|that|there|object|image|picture|photo|shape|silhouette)\b.{0,40}?"
    r"(?:\b(?:is|looks?|appears?|seems?|resembles?|shows?|depicts?|could be|might be)\b|['’]s\b)"
    r"|\bi (?:can |do )?(?:see|believe|think|guess|suspect)\b",
    re.IGNORECASE,
)
_DOUBT = re.compile(
    rf"{_NEGATION}|\b(?:sorry|unable|if|whether|unclear|hard|difficult|impossible|too)\b",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"[.!?](?=\s[A-Z])|\n")
# A sentence about the image or its object, which states the answer ...
_STATEMENT = re.compile(
    r"\b(?:it|this|that|there|object|subject|animal|item|thing|image|picture|photo|photograph)\b"
    r"[^\n]{0,40}?(?:\b(?:is|are|looks?|appears?|seems?|resembles?|shows?|depicts?|represents?"
    r"|contains?|features?|could be|might be)\b|['’]s\b)"
    r"|\bi (?:can |do )?(?:see|believe|think|guess|suspect)\b",
    re.IGNORECASE,
)
# ... unless it describes a cue, or the surroundings.
_CUE = re.compile(
    r"\b(?:textur\w*|pattern\w*|styl\w*|surfaces?|skin|fur|feathers?|materials?|colou?r\w*"
    r"|shapes?|shaped|outlines?|silhouettes?|contours?|forms?|backgrounds?|foregrounds?"
    r"|cover(?:ed|ing)|fill(?:ed|ing)|made|composed|overla(?:id|y|ys)|superimposed|rendered"
    r"|reminiscent|although|though|while|despite|resembling)\b",
    re.IGNORECASE,
)
# Fewest options of a list that a response goes through in order.
_LIST = 4


_DIFFER = Parsed("", "letter and class differ", letter="differs")


class _Mention(NamedTuple):
    """A place of a response that names an option."""

    letter: str  # Capital; "" if only the class is named.
    name: str  # Class, as it is spelled in the set; "" if only the letter is named.


class _Grammar:
    """The rules for one set of options and classes.

    options: class by capital letter, {} for none.
    """

    def __init__(self, options: Mapping[str, str], classes: Sequence[str]):
        self.options = options
        plurals = {plural(_plain(name)): name for name in classes}
        self.by_name = plurals | {_plain(name): name for name in classes}
        names = "|".join(
            re.escape(name).replace(r"\ ", r"[ _]")
            for name in sorted(self.by_name, key=len, reverse=True)
        )
        letters = f"[{re.escape(''.join(options))}]" if options else "(?!)"
        name = rf"(?<![\w-])(?i:(?P<name>{names}))(?![\w-]|['’]s[- ]eye\b)"
        # Repetitions are bounded, so that no response takes long.
        mark = r"[\"'*`(\[ ]{0,4}"
        close = r"[\"'*`]{0,3}(?:[.:,;)\]]|-(?!\w))[\"'*`]{0,3}"
        # A letter ends here: not in "Dog", "D's" and "F-16".
        end = r"(?![\w'’]|-\w)"
        article = r"(?i:an? |the )?"
        # "D. bird", "(D) a bird", "D bird"; "A bird" and "I" have no letters.
        beside = rf"(?:{close}\s?{mark}{article}|(?<![AaIi])[ ]){name}"
        self.name = re.compile(name)
        self.name_alone = re.compile(rf"\W{{0,9}}{article}{name}\W{{0,9}}")
        self.pair = re.compile(rf"(?<![\w'’])(?P<letter>{letters}){beside}")
        # For the beginning of a response, without marks and "The answer is".
        self.letter_alone = re.compile(
            rf"(?P<letter>(?i:{letters}))[\"'*`.:,;)\]\s]{{0,6}}"
        )
        self.first_pair = re.compile(rf"(?P<letter>(?i:{letters})){beside}")
        # "D. The ...", "D - the ...", "**D** The ...", "D" on its line, "D because ...".
        self.first_letter = re.compile(
            rf"(?P<letter>{letters})(?:{close}|\s[-–—]\s|[\"'*`]{{1,3}}(?=\s|$)"
            r"|\s(?:because|since|due to|is|as it|fits|matches|best)\b)"
            rf"|(?P<line>(?i:{letters}))[\"'*`.:,;)\]]{{0,6}}\s?\n"
        )
        # "H, K" or "D or H."; not "D, I think".
        self.letter_list = re.compile(
            rf"{letters}(?:\s?(?:,|/|&|\band\b|\bor\b)\s?{letters})+(?=\s?(?:$|[.,;:!?)\n]))"
        )
        # A letter at the beginning of the response, a line, a sentence or a bracket.
        self.sentence_letter = re.compile(
            rf"(?:^|(?<=\()|(?<=[.!?:]\s)){mark}(?P<letter>{letters})(?:{close}|\s?$)",
            re.MULTILINE,
        )
        # "The answer is D", "... is option D, because".
        self.concluded_letter = re.compile(
            rf"\s?{mark}(?i:option |letter )?{mark}(?P<letter>{letters}){end}"
        )
        # "The answer is a bird".
        self.concluded_name = re.compile(rf"\s?{mark}{article}{name}")
        option = (
            rf"{mark}(?i:option |letter )?{mark}"
            rf"(?:{article}{name}|{letters}{end}(?!(?<=[AI])\s+\w))"
        )
        self.choice = re.compile(rf"{_CHOICE}(?=\s{_without_groups(option)})")
        denied = _without_groups(
            rf"(?:(?i:an? |the |any )(?i:(?!only|just)[a-z-]{{1,20}} )?)?{name}"
            rf"|{letters}{beside}|(?i:option )?{letters}{end}(?!(?<=[AI])\s+\w)"
        )
        self.denial = re.compile(
            rf"(?i:{_NEGATION})\s(?:(?i:{_BETWEEN})\s){{0,9}}{mark}(?:{denied})[\"'*`)\]]{{0,4}}"
            # "no cat, dog or bird", "neither A nor B".
            rf"(?:(?:,\s(?:{denied})){{0,20}},?\s(?i:or|nor)\s(?:{denied}))?"
            r"(?P<but>,?\sbut\s(?:rather |actually |instead )?)?"
        )
        # InstructBLIP's line breaks are published as the letter "n" ("I. chairnI. chair").
        self.lost_break = re.compile(
            rf"(?<=[A-Za-z.:])n(?=The\b|{letters}(?:[.:)]|n{letters}|n?$))"
        )

    def parse(self, response: str) -> Parsed:
        """Return the class that a response names."""
        response = _plain_letters(response).strip()
        if response.startswith(_REFUSED_MARK):
            return Parsed("", "refusal")
        is_cut = response.endswith(_CUT_MARK)
        response = _without_reasoning(response.removesuffix(_CUT_MARK))
        if is_no_answer(response):
            is_refused = _plain_words(response) in _REFUSED_WORDS
            return Parsed("", "refusal" if is_refused else "empty")
        response = self.lost_break.sub("\n", response)
        for pattern, replacement in _REPLACED:
            response = pattern.sub(replacement, response)
        original = "\n".join(filter(None, map(_single_spaces, response.splitlines())))
        # "not D but H" is "H"; other denials leave a mark that is no word.
        response = self.denial.sub(lambda x: "" if x["but"] else "~", original)
        text, is_introduced = _without_introduction(response)
        match = self.letter_alone.fullmatch(text)
        if match:
            return self._decide([_Mention(match["letter"].upper(), "")])
        if self.first_pair.match(text):
            return self._of_first_pair(text, can_list=not is_introduced, is_cut=is_cut)
        if self.letter_list.match(text):
            return Parsed("", "several options")
        match = self.first_letter.match(text)
        if match:
            return self._of_first_letter(match, text)
        if is_cut:
            start = len(response) - len(text)
            parsed = self._of_conclusion(response, start) if is_introduced else None
            return parsed or Parsed("", "cut off")
        start = self._conclusion_start(response)
        if start is not None:
            parsed = self._of_conclusion(response, start)
            if parsed:
                return parsed
        parsed = self._decide(self._mentions(response))
        if _REFUSAL.match(original):
            is_answer = parsed.decision and self._asserts(response)
            return parsed if is_answer else Parsed("", "refusal")
        if _NO_OPTION_FITS.search(original):
            return Parsed("", "no option")
        return parsed

    def _asserts(self, response: str) -> bool:
        """Return True if a clause without doubts asserts an option, such as "it is a car"."""
        for clause in _CLAUSE_END.split(response):
            if _DOUBT.search(clause):
                continue
            for match in _ASSERTION.finditer(clause):
                start = match.end()
                name = self.name.search(clause, start, start + 60)
                # At most three words between: "looks most like a car".
                if name and len(clause[start : name.start()].split()) <= 3:
                    return True
        return False

    def _of_first_pair(self, text: str, *, can_list: bool, is_cut: bool) -> Parsed:
        """Return the decision of a text that begins with a letter and a class.

        can_list: whether the options of a list may follow. is_cut: whether the text is cut off.
        """
        first = self.first_pair.match(text)
        start = self._conclusion_start(text, first.end())
        concluded = set() if start is None else self._concluded_classes(text, start)
        end = start if concluded else len(text)
        matches = [first, *self.pair.finditer(text, first.end(), end)]
        pairs = [self._mention(match) for match in matches]
        num_options = len(self.options)
        echo = pairs[:num_options]
        is_echo = len({pair.letter for pair in echo}) == num_options
        if can_list and is_echo and self._is_list(echo):
            return self._of_echo(
                text, matches[:num_options], concluded=concluded, is_cut=is_cut
            )
        if len({pair.letter for pair in pairs}) == 1:
            parsed = self._decide(pairs)
        elif not can_list or not self._is_list(pairs):
            return Parsed("", "several options")
        elif is_cut:
            return Parsed("", "cut off")
        else:
            parsed = self._decide(pairs[:1])._replace(rule="first of a list")
        if parsed.decision and concluded - {parsed.decision}:
            return Parsed("", "several options")
        return parsed

    def _of_echo(
        self,
        text: str,
        matches: Sequence[re.Match],
        *,
        concluded: Collection[str],
        is_cut: bool,
    ) -> Parsed:
        """Return the decision of a text that begins with a list of all options.

        matches: of the options in the list. concluded: the classes that a conclusion after the list
        names. is_cut: whether the text is cut off.
        """
        if is_cut:
            return Parsed("", "cut off")
        follows = text[matches[-1].end() :]
        if not concluded:
            mentions = self._mentions(follows)
            pairs = [mention for mention in mentions if mention.letter and mention.name]
            first, last = self._mention(matches[0]), self._mention(matches[-1])
            # The list ends the text, or begins again, perhaps with gaps and an end that is cut off.
            has_more = len(mentions) > len(pairs)
            steps = self._steps([last, *pairs])
            is_again = steps[:1] == [1] and all(step in (1, 2) for step in steps)
            if not mentions or (is_again and (len(pairs) > 1 or not has_more)):
                return self._decide([first])._replace(rule="first of a list")
            concluded = self._named_classes(mentions)
        if len(concluded) != 1:
            return Parsed("", "several options")
        return Parsed(next(iter(concluded)), "", "conclusion", "agrees")

    def _is_list(self, pairs: Sequence[_Mention]) -> bool:
        """Return True for options in the order of their letters, from any one on, in a circle."""
        is_ordered = all(step in (1, 2) for step in self._steps(pairs))
        is_right = all(self.options[pair.letter] == pair.name for pair in pairs)
        return is_ordered and is_right and len({*pairs}) >= _LIST

    def _steps(self, pairs: Sequence[_Mention]) -> list[int]:
        """Return the number of letters from each option to the next, in a circle."""
        places = [[*self.options].index(pair.letter) for pair in pairs]
        return [
            (place - last) % len(self.options)
            for last, place in itertools.pairwise(places)
        ]

    def _of_first_letter(self, match: re.Match, text: str) -> Parsed:
        """Return the decision of a text that begins with a letter, and then has an explanation.

        match: of `first_letter`.
        """
        letter = (match["letter"] or match["line"]).upper()
        option = self.options[letter]
        letters = {x["letter"] for x in self.sentence_letter.finditer(text)}
        if letters - {letter}:
            return Parsed("", "several options")
        start = self._conclusion_start(text, match.end())
        is_concluded = start is not None
        if is_concluded and self._concluded_classes(text, start) - {option}:
            return Parsed("", "several options")
        names = {mention.name for mention in self._mentions(text)} - {""}
        if option in names:
            return Parsed(option, "", "letter", "agrees")
        if self._stated_names(text, match.end()):
            return _DIFFER
        return Parsed(option, "", "letter", "alone")

    def _stated_names(self, text: str, start: int) -> set[str]:
        """Return the classes in the sentences that state the answer of a text.

        These are the sentence of the letter, which ends at `start`, sentences that are a class alone,
        and all statements about the image or its object, except those about a texture, a shape or
        the surroundings.
        """
        is_sentence_end = text[start - 1] in ".\n"
        names = set()
        for number, sentence in enumerate(_SENTENCE_END.split(text[start:])):
            is_of_letter = number == 0 and not is_sentence_end
            is_stated = _STATEMENT.search(sentence) or self.name_alone.fullmatch(
                sentence
            )
            if not (is_of_letter or is_stated):
                continue
            if not _CUE.search(sentence):
                names |= {mention.name for mention in self._mentions(sentence)}
        return names - {""}

    def _conclusion_start(self, response: str, begin: int = 0) -> int | None:
        """Return where the last conclusion's option begins; None without a conclusion.

        A last line that is a letter alone is a conclusion, if no other line is. begin: where to
        search from.
        """
        starts = [
            match.end()
            for pattern in (_CONCLUSION, self.choice)
            for match in pattern.finditer(response, begin)
        ]
        lines = response[begin:].split("\n")
        is_letter = [bool(self.letter_alone.fullmatch(x.lstrip(_MARKS))) for x in lines]
        if is_letter[-1] and len(lines) > 1 and sum(is_letter) == 1:
            starts.append(len(response) - len(lines[-1]))
        return max(starts, default=None)

    def _concluded_classes(self, response: str, start: int) -> set[str]:
        """Return the classes that a conclusion directly names; several if it contradicts itself.

        start: where the conclusion's option begins, such as the "H" of "The answer is H".
        """
        letters = self.letter_list.match(response[start:].lstrip(_MARKS))
        if letters:
            return {self.options[x] for x in letters[0] if x in self.options}
        name = self.concluded_name.match(response, start)
        if name:
            return {self.by_name[_plain(name["name"])]}
        match = self.concluded_letter.match(response, start)
        if not match or self._is_article(response, match):
            return set()
        pair = self.pair.match(response, match.start("letter"))
        mention = self._mention(pair) if pair else _Mention(match["letter"], "")
        return self._named_classes([mention])

    def _named_classes(self, mentions: Sequence[_Mention]) -> set[str]:
        """Return the classes that mentions name by letter or by name."""
        by_letter = {
            self.options[mention.letter] for mention in mentions if mention.letter
        }
        return by_letter | {mention.name for mention in mentions if mention.name}

    def _of_conclusion(self, response: str, start: int) -> Parsed | None:
        """Return the decision of the sentence that begins at `start`; None if it has no option."""
        end = _SENTENCE_END.search(response, self._after_letter(response, start))
        sentence = response[start : end.start() if end else len(response)]
        mentions = self._mentions(sentence)
        if self.letter_list.match(sentence.lstrip(_MARKS)):
            return Parsed("", "several options")
        match = self.concluded_letter.match(sentence)
        if match and not self._is_article(sentence, match):
            mentions.append(_Mention(match["letter"], ""))
        if not mentions:
            return None
        parsed = self._decide(mentions)
        names = {mention.name for mention in mentions} - {""}
        other_names = self._plain_names(response)
        is_letter = parsed.decision and not names
        if is_letter and len(other_names) == 1 and other_names != {parsed.decision}:
            return _DIFFER
        if is_letter and parsed.decision in other_names:
            parsed = parsed._replace(letter="agrees")
        return parsed._replace(rule="conclusion") if parsed.decision else parsed

    def _plain_names(self, response: str) -> set[str]:
        """Return the classes in the sentences that describe no texture, shape or surroundings."""
        sentences = _SENTENCE_END.split(response)
        mentions = [
            mention
            for sentence in sentences
            if not _CUE.search(sentence)
            for mention in self._mentions(sentence)
        ]
        return {mention.name for mention in mentions} - {""}

    def _after_letter(self, sentence: str, start: int) -> int:
        """Return the end of a letter with its dot at `start`: that dot ends no sentence."""
        match = self.concluded_letter.match(sentence, start)
        return match.end() + 1 if match else start

    def _is_article(self, sentence: str, match: re.Match) -> bool:
        """Return True for the "A" of "A bird" and the "I" of "I think"."""
        follows = sentence[match.end("letter") :]
        return match["letter"] in "AI" and bool(re.match(r"\s+\w", follows))

    def _mentions(self, response: str) -> list[_Mention]:
        """Return the places that name an option: classes, letters with classes, letters."""
        mentions, ends = [], set()
        for match in self.pair.finditer(response):
            mentions.append(self._mention(match))
            ends.add(match.end())
        for match in self.name.finditer(response):
            if match.end() not in ends:
                mentions.append(_Mention("", self.by_name[_plain(match["name"])]))
        for match in self.sentence_letter.finditer(response):
            mentions.append(_Mention(match["letter"], ""))
        return mentions

    def _mention(self, match: re.Match) -> _Mention:
        """Return the mention of a match of a letter with a class."""
        return _Mention(match["letter"].upper(), self.by_name[_plain(match["name"])])

    def _decide(self, mentions: Sequence[_Mention]) -> Parsed:
        """Return the only class of all mentions, or the reason why there is none."""
        by_letter = {self.options[x.letter] for x in mentions if x.letter}
        by_name = {x.name for x in mentions if x.name}
        named = by_letter | by_name
        if not named:
            return Parsed("", "no option")
        if len(named) == 1:
            rule = " and ".join(
                ["letter"] * bool(by_letter) + ["class"] * bool(by_name)
            )
            return Parsed(named.pop(), "", rule, _letter(by_name, bool(by_letter)))
        if len(by_letter) == len(by_name) == 1:
            return _DIFFER
        return Parsed("", "several options")


def _plain_letters(text: str) -> str:
    """Return a text in the Unicode form NFKC, without letters that are not shown."""
    text = unicodedata.normalize("NFKC", text)
    if text.isascii():
        return text
    return "".join(x for x in text if unicodedata.category(x) != "Cf")


def _without_reasoning(text: str) -> str:
    """Return a text without blocks of reasoning; see rule 0 of the module."""
    if _STAGES.search(text):
        text = _CAPTION.sub(r"<\1think>", text)
    marks = sorted(
        (match.start(), match.end(), is_begin)
        for pattern, is_begin in ((_REASONING_BEGIN, True), (_REASONING_END, False))
        for match in pattern.finditer(text)
    )
    answer, start, is_open = "", 0, False
    for mark_start, mark_end, is_begin in marks:
        if is_begin and not is_open:
            answer += text[start:mark_start] + "\n"
        elif not is_begin:
            # An end without a beginning: all text until here was reasoning.
            answer = answer if is_open else ""
            start = mark_end
        is_open = is_begin
    return answer if is_open else answer + text[start:]


def _without_groups(pattern: str) -> str:
    """Return a regular expression whose named groups have no names."""
    return re.sub(r"\(\?P<\w+>", "(?:", pattern)


def _letter(names: Collection[str], has_letter: bool) -> str:
    """Return `Parsed.letter` of a decision. names: classes that are named beside it, which agree."""
    if not has_letter:
        return ""
    return "agrees" if names else "alone"


def _single_spaces(line: str) -> str:
    """Return a line with single spaces between its words and none around them."""
    return " ".join(line.split())


def _without_introduction(response: str) -> tuple[str, bool]:
    """Return a response without marks and "The answer is" before it, and whether it had these words."""
    text = response.lstrip(_MARKS)
    match = _INTRODUCTION.match(text)
    return (text[match.end() :].lstrip(_MARKS), True) if match else (text, False)


def plural(name: str) -> str:
    """Return the regular plural of a class name, such as "birds", "knives" or "boxes"."""
    if name.endswith("fe"):
        return f"{name[:-2]}ves"
    if re.search(r"[^aeiou]y$", name):
        return f"{name[:-1]}ies"
    return f"{name}es" if re.search(r"(?:s|x|z|ch|sh)$", name) else f"{name}s"


def _plain(name: str) -> str:
    """Return a class name in lower case with spaces between its words."""
    return unicodedata.normalize("NFKC", name).casefold().replace("_", " ")
