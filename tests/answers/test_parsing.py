"""The parser reads what responses say and nothing else; it agrees with published readings."""

import pandas as pd
import pytest

from jbias.answers import parsing
from jbias.measures import human_answers
from tests import cases
from tests.answers import published

LIST = ". ".join(
    f"{x}: {y}" for x, y in parsing.letter_options(parsing.CLASSES16).items()
)


@cases.each(
    ("response", "decision"),
    [
        # Letters.
        ("D", "bird"),
        ("d", "bird"),
        ("D.", "bird"),
        (" D\n", "bird"),
        ("(D)", "bird"),
        ("D)", "bird"),
        ("**D**", "bird"),
        ("[D].", "bird"),
        ("A", "airplane"),
        ("I.", "chair"),
        ("Answer: D", "bird"),
        ("The answer is D", "bird"),
        ("The correct answer is (D).", "bird"),
        ("Option D", "bird"),
        ("D. The image shows an animal.", "bird"),
        # Letters with classes.
        ("D. bird", "bird"),
        ("D) bird", "bird"),
        ("(D) bird", "bird"),
        ("D: Bird.", "bird"),
        ("D - bird", "bird"),
        ("D bird", "bird"),
        ("d. bird", "bird"),
        ("D. a bird", "bird"),
        ("The answer is D. bird.", "bird"),
        ("Answer: D. bird", "bird"),
        ("A. airplane", "airplane"),
        ("I. chair", "chair"),
        ("I. chair\nI. chair\nI. chair", "chair"),
        ("I. chairnI. chairnI. chairnI. cha", "chair"),
        ("D. bird. The image shows a bird on top of a truck.", "bird"),
        # Classes.
        ("bird", "bird"),
        ("Bird.", "bird"),
        ("BIRD", "bird"),
        ("A bird on a wire", "bird"),
        ("A bird", "bird"),
        ("a bird", "bird"),
        ("I see a bird.", "bird"),
        ("I think it is a bird, a very small bird.", "bird"),
        ("It is not a cat, it is a dog.", "dog"),
        ("The object is a truck!", "truck"),
        ("A collage of clocks.", "clock"),
        ("A set of knives", "knife"),
        ("D, I think", "bird"),
        ("The image shows a bird. It is in the air.", "bird"),
        # Conclusions.
        ("The image looks most like a bicycle.\nThe answer is C.", "bicycle"),
        ("The image looks most like a bird.\nD.", "bird"),
        ("It has a car and a clock. Therefore, the correct option is G. car.", "car"),
        ("There are cars and a dog. The answer is a bird.", "bird"),
        (
            "It shows a cat or a dog, but the best option is K, because of its ears.",
            "dog",
        ),
        ("JnThe clock in the image is an analog clock.", "clock"),
        ("I'd go with C.", "bicycle"),
        ("I would choose option C.", "bicycle"),
        ("I'd say it's a bird.", "bird"),
        ("The answer is D. I'd go with that.", "bird"),
        ("The letter is D", "bird"),
        ("\\boxed{D}", "bird"),
        ("It has a cat and a dog. $\\boxed{\\text{H}}$", "cat"),
        ("<answer>D</answer>", "bird"),
        ("<think>a cat or a dog</think>\n<answer>H. cat</answer>", "cat"),
        # Letters before an explanation, which may describe the other cue.
        ("**D**\nThe texture is that of a cat, the outline is a bottle.", "bird"),
        ("**D**\n\nThe image has the texture of cats.", "bird"),
        ("**D** The surface looks like a cat's fur: a cat.", "bird"),
        ("D\nThe texture is that of a cat.", "bird"),
        ("D\n\nCats and dogs are painted on the wall.", "bird"),
        ("D. The texture is that of a cat.", "bird"),
        ("D - the texture is that of a cat", "bird"),
        ("D because the texture is that of a cat, not of a dog", "bird"),
        ("**Answer:** D\nThe texture resembles a cat.", "bird"),
        ("**Answer: D**\n\nThe texture resembles a cat.", "bird"),
        ("### D\nThe texture resembles a cat.", "bird"),
        ("__D__\nThe texture resembles a cat.", "bird"),
        ("<b>D</b><br>The texture resembles a cat.", "bird"),
        ("A\nThe texture is that of a cat.", "airplane"),
        ("**D**\nThe image shows a bird with the texture of a cat.", "bird"),
        ("The texture is that of a cat. The answer is D.", "bird"),
        ("The texture is a cat's, the shape is that of a car.\n\n**D**", "bird"),
        # Conclusions after a list of all options, and after letters that agree.
        (f"{LIST}\n\nAnswer: H", "cat"),
        (f"{LIST}.\nThe answer is H. cat.", "cat"),
        (f"{LIST}\n\n**H**", "cat"),
        (f"{LIST}\n\nH. cat", "cat"),
        (f"{LIST}\n\nB. bear", "bear"),
        (f"{LIST}\n\nIt looks like a cat.", "cat"),
        (f"{LIST}. {LIST}", "airplane"),
        ("L. elephant\n\nFinal answer: L", "elephant"),
        ("H. The texture is an elephant's. So the answer is H.", "cat"),
        ("H. cat. The best option is clear: the texture of a dog is not", "cat"),
        # Reasoning does not decide.
        (
            (
                "<SUMMARY>I look.</SUMMARY>\n\n<CAPTION>An elephant.</CAPTION>\n\n"
                "<REASONING>Its outline.</REASONING>\n\n<CONCLUSION>H</CONCLUSION>"
            ),
            "cat",
        ),
        ("<CAPTION>A cat</CAPTION>", "cat"),
        (
            (
                "<|START_THINKING|>The skin of an elephant.<|END_THINKING|>"
                "<|START_RESPONSE|>H<|END_RESPONSE|>"
            ),
            "cat",
        ),
        ("<think>It is a cat. The answer is H.</think>D", "bird"),
        ("<think>\nH. cat\n</think>\n\n**D**\nThe cat is a texture.", "bird"),
        ("It may be a cat. The answer is H.</think>D. bird", "bird"),
        ("<Thinking>H</Thinking><reasoning>cat</reasoning> bird", "bird"),
        ("D <think>or is the answer H. cat", "bird"),
        ("◁think▷a cat◁/think▷D", "bird"),
        ("[THINK]a cat[/THINK]D", "bird"),
        ("<think>use <think> for a cat</think>D", "bird"),
        ("<think>a cat</think><|begin_of_box|>D<|end_of_box|>", "bird"),
        (
            "<|channel|>analysis<|message|>a cat<|end|><|channel|>final<|message|>D",
            "bird",
        ),
        # Other forms of letters.
        ("\uff24", "bird"),
        ("\uff24\u3002", "bird"),
        ("D\u200b", "bird"),
        ("\ufeffD. bird", "bird"),
        # Denied options.
        ("The answer is not D but H.", "cat"),
        ("C. bicycle, not A. airplane", "bicycle"),
        ("Not A. airplane; it is C. bicycle", "bicycle"),
        ("This doesn't look like a cat. It looks like a bear.", "bear"),
        ("A cat rather than a dog", "cat"),
        ("It is not a cat but a dog.", "dog"),
        ("The object is not a cat, dog, or bird. It is a clock.", "clock"),
        ("A bird without a boat", "bird"),
        # Not denied.
        ("It is not only a cat.", "cat"),
        ("There is no doubt that this is a cat.", "cat"),
        ("A man with no shirt on a boat", "boat"),
        ("The photo is not in color and shows a cat.", "cat"),
        ("No, it is a cat.", "cat"),
        # An answer after the words of a refusal.
        ("I cannot say for certain, but it looks most like a car.", "car"),
        ("I can't quite tell, but I believe it is G. car", "car"),
        ("I don't think this is a cat; it's a dog.", "dog"),
        ("I don't see a bird; the object is a car. G", "car"),
        ("As an AI language model I can see that this is a bird. D", "bird"),
        ("I'm sorry, I cannot see it, but if I had to guess, I'd say D. bird.", "bird"),
        # Longer names that have a class as a word.
        ("a hot dog", "dog"),
        ("a bird house", "bird"),
        # A list that goes on after the answer.
        (LIST, "airplane"),
        (
            "L: elephantnM: keyboardnN: knifenO: ovennP: trucknA: airplanenB: bea",
            "elephant",
        ),
    ],
)
def test_responses_that_name_an_option(response, decision):
    assert parsing.parse(response)[:2] == (decision, "")


@cases.each(
    ("response", "reason"),
    [
        ("", "empty"),
        ("  \n", "empty"),
        ("None", "empty"),
        ("N/A", "empty"),
        ("BLOCKED", "refusal"),
        ("I'm sorry, I cannot help with that.", "refusal"),
        ("I’m sorry, but I can’t identify the bird.", "refusal"),
        ("As an AI, I cannot see images.", "refusal"),
        ("As an AI language model, I do not see a cat.", "refusal"),
        ("I cannot determine the object.", "refusal"),
        ("There is no image to reference.", "refusal"),
        ("I'm sorry, I cannot help with images of a cat.", "refusal"),
        ("I'm sorry, but I cannot tell whether it is a cat.", "refusal"),
        ("I cannot tell from this image if it is a cat.", "refusal"),
        ("I'm sorry, but it is a cat or a dog.", "refusal"),
        ("I don't see a bird here.", "refusal"),
        ("Unfortunately, I am unable to say.", "refusal"),
        ("None of the options fits; it looks like a toy train car.", "no option"),
        ("The image does not match any of the options listed (A-P).", "no option"),
        ("It is a lamp, which is not among the options, near a car.", "no option"),
        ("D. cat", "letter and class differ"),
        ("(A) bird", "letter and class differ"),
        ("The answer is D. cat.", "letter and class differ"),
        ("D. The image shows a cat.", "letter and class differ"),
        (
            "The image looks most like a bird. The answer is C.",
            "letter and class differ",
        ),
        ("**D**\nThe image shows a cat.", "letter and class differ"),
        ("D\ncat", "letter and class differ"),
        ("D, because it is a cat", "letter and class differ"),
        (
            "**D**\nIt is a cat. The texture is that of a dog.",
            "letter and class differ",
        ),
        ("**D**\nThe answer is H.", "several options"),
        ("**D**\nThe texture is that of a cat.\n**H**", "several options"),
        ("<think>It is a cat. The answer is H.</think>", "empty"),
        ("<think>It is a cat. The answer is H. cat", "empty"),
        ("<reasoning>H. cat", "empty"),
        ("It is a cat. H. cat</think>", "empty"),
        ("<think>H. cat</think>None", "empty"),
        ("<think>H. cat</think>BLOCKED", "refusal"),
        ("<think>H. cat</think>I'm sorry, I cannot help with that.", "refusal"),
        ("L. elephant ... Final answer: H", "several options"),
        ("L. elephant. Wait, the answer is a cat.", "several options"),
        (
            "L. The skin is that of an elephant, but not the outline. So the answer is H.",
            "several options",
        ),
        ("L. elephant\nM. keyboard\nN. knife\nO. oven\nAnswer: H", "several options"),
        (f"{LIST}\nThe answer is H or K.", "several options"),
        (f"{LIST}\nThe answer is H. dog", "several options"),
        (f"{LIST}\nIt is a cat or a dog.", "several options"),
        ("<SUMMARY>I look.</SUMMARY><CAPTION>A cat.</CAPTION>", "empty"),
        ("F-16 fighter jet in flight", "no option"),
        ("C-shaped metal hook", "no option"),
        ("The answer is F-16.", "no option"),
        ("D or H", "several options"),
        ("H, K", "several options"),
        ("A clock in front of birds", "several options"),
        ("bird or cat", "several options"),
        ("D. bird or H. cat", "several options"),
        ("D. bird, H. cat", "several options"),
        ("A cat sits on a car.", "several options"),
        (
            "The best option is A. airplane, B. bear, C. bicycle, D. bird, E. boat",
            "several options",
        ),
        ("JnCnDnEnFnGnHnInJnKnLnMnNnOnPnAnBnC", "several options"),
        ("B. It shows an elephant. D. It shows a bird.", "several options"),
        ("An airliner above the clouds", "no option"),  # No synonyms.
        ("Two kittens", "no option"),
        ("A carpet with a birdhouse", "no option"),
        ("from a bird's-eye view", "no option"),
        ("This is not a bird.", "no option"),
        ("The image does not show a cat.", "no option"),
        ("The image does not contain a cat", "no option"),
        ("It does not look like a car", "no option"),
        ("It does not appear to be a cat.", "no option"),
        ("This is not really a cat.", "no option"),
        ("This is not a photo of a real bird.", "no option"),
        ("I see no evidence of a bird here.", "no option"),
        ("There is no cat or dog here.", "no option"),
        ("It isn't clear whether this is a cat or a dog.", "no option"),
        ("not D", "no option"),
        ("I would pick G or H", "several options"),
        ("A", ""),
        ("A nice picture", "no option"),
        ("I do not know", "refusal"),
        ("Q", "no option"),
        ("zebra", "no option"),
        ("1", "no option"),
    ],
)
def test_responses_that_name_no_option(response, reason):
    parsed = parsing.parse(response)
    assert parsed.reason == reason
    assert bool(parsed.decision) == (not reason)


@cases.each(
    ("words", "decision", "reason"),
    [
        ("H", "cat", ""),
        ("H. cat, as the outl", "cat", ""),
        ("**H**\nThe skin is that of an eleph", "cat", ""),
        ("The answer is H", "cat", ""),
        ("The answer is a cat, becau", "cat", ""),
        (
            "The skin looks like that of the elephant. However, the outline",
            "",
            "cut off",
        ),
        ("an elephant", "", "cut off"),
        ("It is an elephant. So the answer is", "", "cut off"),
        (LIST[:60], "", "cut off"),
        (LIST, "", "cut off"),
        ("", "", "empty"),
        ("<think>It is a cat.", "", "empty"),
        ("I'm not sure what it is, but the cat", "", "cut off"),
    ],
)
def test_of_words_that_are_cut_off_the_beginning_counts(words, decision, reason):
    """Whole words without the mark would be read to the end."""
    parsed = parsing.parse(parsing.mark_cut(words))
    assert (parsed.decision, parsed.reason) == (decision, reason)


@cases.each("words", ["", "H", "H. cat", "This image of a cat violates our policy."])
def test_words_that_are_marked_as_refused_are_no_answer(words):
    marked = parsing.mark_refused(words)
    assert parsing.parse(marked)[:2] == ("", "refusal")
    assert parsing.parse(f" {marked}\n")[:2] == ("", "refusal")


def test_options_may_differ_from_the_classes_in_case():
    options = {"A": "Fox", "B": "HEN"}
    for words in ("B", "B. hen", "HEN"):
        assert parsing.parse(words, options, ("fox", "hen")).decision == "hen"


def test_every_option_is_read_in_every_usual_form():
    """A letter, a class and both give the same class, for all 16."""
    for letter, name in parsing.letter_options(parsing.CLASSES16).items():
        forms = (
            letter,
            f"{letter}.",
            f"({letter})",
            f"{letter}. {name}",
            f"{letter}) {name}",
            f"({letter}) {name.upper()}",
            f"The answer is {letter}.",
            f"The answer is {letter}. {name}.",
            f"The answer is {name}.",
            f"Therefore, the correct option is {letter}.",
            name,
            f"A {name} on a table.",
            f"It is a photo of a {name}",
        )
        for form in forms:
            assert parsing.parse(form).decision == name, form


def test_letters_that_differ_from_the_class_are_never_an_answer():
    options = parsing.letter_options(parsing.CLASSES16)
    for letter, right in options.items():
        for name in parsing.CLASSES16:
            for form in (f"{letter}. {name}", f"The answer is ({letter}) {name}."):
                expected = name if name == right else ""
                assert parsing.parse(form).decision == expected, form


def test_other_classes_and_options_can_be_named():
    classes = ("traffic light", "tabby_cat", "zebra")
    assert (
        parsing.parse("B. traffic light", classes=classes).decision == "traffic light"
    )
    assert parsing.parse("It is a tabby cat.", classes=classes).decision == "tabby_cat"
    options = {"A": "zebra", "B": "traffic light", "C": "tabby_cat"}
    assert parsing.parse("A", options, classes).decision == "zebra"
    assert parsing.parse("A", {}, classes).reason == "no option"
    assert parsing.letter_options([str(i) for i in range(27)]) == {}


def test_a_longer_class_is_not_the_shorter_one_in_it():
    classes = ("bear", "polar bear")
    assert parsing.parse("a polar bear", classes=classes).decision == "polar bear"


def test_a_letter_alone_is_marked_as_resting_on_the_order_of_options():
    """Also if an explanation names another class, which no sentence states as the answer."""
    for words, letter in (
        ("D", "alone"),
        ("**D**\nThe texture is that of a cat.", "alone"),
        ("**D**\nThe texture is that of a cat, the image shows a bird.", "agrees"),
        ("**D**\nThe image shows a cat.", "differs"),
    ):
        assert parsing.parse(words).letter == letter, words


@cases.each(
    "text", ["", " ", "na", "NA", "None", "NaN", "n/a", "null", "-", "[refused]"]
)
def test_words_for_no_answer(text):
    assert parsing.is_no_answer(text)
    assert parsing.parse(text).decision == ""


def test_the_word_of_human_observers_is_no_answer_and_classes_are_answers():
    assert parsing.is_no_answer(human_answers.NONE)
    assert not any(parsing.is_no_answer(name) for name in parsing.CLASSES16)


@cases.each(
    ("text", "name"),
    [("Bird ", "bird"), ("BIRD", "bird"), ("birds", ""), ("bird.", ""), ("", "")],
)
def test_classes_in_cells_may_differ_in_case_and_spaces_only(text, name):
    assert parsing.match_class(text, parsing.CLASSES16) == name


def test_classes_that_differ_in_case_only_are_matched_exactly():
    classes = ("Jaguar", "jaguar")
    assert parsing.match_class("jaguar", classes) == "jaguar"
    assert parsing.match_class("JAGUAR", classes) == ""


def test_hostile_responses_take_no_time():
    """Long repetitions of the parts of a pattern: the parser must not backtrack."""
    for part in (
        "(",
        "A. ",
        "answer is ",
        "not a ",
        "bird ",
        "n",
        "*",
        "\n",
        "A",
        "In",
        "not a cat, cat ",
        "not in the image of the ",
        "does not look like ",
        "I'm sorry, it is ",
        "I'd say ",
        "\\boxed{",
        "<answer>",
        "<think>",
        "<think></think>",
        "<CAPTION><SUMMARY>",
        "A. airplane B. bear answer: ",
        f"{LIST} ",
        "</think>",
        "**D**\n",
        "D\nit ",
        "__D",
        "it is it ",
        "**D** it is a cat. ",
    ):
        assert isinstance(parsing.parse(part * (100_000 // len(part))), parsing.Parsed)


@published.needed
def test_published_answers_by_multiple_choice_are_read_as_published():
    """At least 99.9 % of 14 x 1,280 answers; no answer on both sides agrees."""
    num_equal = count = 0
    for path in (published.VLM / "vlm/vqa").glob("*.csv"):
        table = pd.read_csv(path, dtype=str, keep_default_na=False)
        for words, label in zip(table["response"], table["pred_label"], strict=True):
            expected = "" if label == "None" else label
            num_equal += parsing.parse(words).decision == expected
            count += 1
    assert count == 14 * 1280
    assert num_equal / count >= 0.999


@published.needed
@pytest.mark.parametrize("folder", ["clip", "inet_classifier"])
def test_responses_that_are_classes_are_these_classes(folder):
    for path in (published.VLM / folder).glob("*.csv"):
        table = pd.read_csv(path, dtype=str, keep_default_na=False)
        if "response" in table:
            decided = table["response"].map(lambda words: parsing.parse(words).decision)
            assert (decided == table["pred_label"]).all()
