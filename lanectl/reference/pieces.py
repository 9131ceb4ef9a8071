"""The written vocabulary of the reference model: whole words and parts of words, beside the 256 single bytes.

The order is part of the model: a piece's place is its token id.
"""

_WORDS = """
the of and to a in is that it for on with as was at by an be this from or are not but have they which you one all
were her she there would their we him been has when who will no more if out so up said what its about than into
them can only other time new some could these two may first then do any like my now over such our man me even most
made after also did many before must through back years where much your way well down should because each just
those people how too little state good very make world still see work long get here between both life being under
never day same another know while last might us great old year off come since against go came right used take three
water light house small word night river stone table answer number order music bread winter garden letter morning
paper road seven window
"""
_PARTS = """
ing ed er ly tion es en re un al ment ness able ous ive ist ize th he in an on at or is it ar le se de st nd ti ch
sh qu ou ea ee oo ll ss tt pp ck wh gh ph pr tr gr cr br fl cl pl sp sc
"""
_SIGNS = (", ", ". ", ": ", "; ", "? ", "! ", "\n\n", " - ", "()", "{}", "[]", " = ", " + ", "://", "```", "    ")
_BEYOND_ASCII = ("é", "ü", "ñ", " café", " Straße", " — ", "…", "日本", "你好", "при", "λ", "😀")


def pieces() -> tuple[str, ...]:
    """Return every piece, once, in the order of its token id."""
    words = [" " + word for word in _WORDS.split()]
    return tuple(dict.fromkeys([*words, *_PARTS.split(), *_SIGNS, *_BEYOND_ASCII]))
