package fence

import (
	"cmp"
	"slices"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// lookalike is a character that can be taken for ASCII ones.
type lookalike struct {
	r  rune
	as string
}

// looksLike is what a character can be taken for, or "". One with an accent counts as its letter.
func looksLike(r rune) string {
	if r < utf8.RuneSelf {
		return ""
	}
	if i, ok := slices.BinarySearchFunc(lookalikes, r, func(l lookalike, r rune) int { return cmp.Compare(l.r, r) }); ok {
		return lookalikes[i].as
	}
	var buf [utf8.UTFMax]byte
	d := norm.NFD.Properties(buf[:utf8.EncodeRune(buf[:], r)]).Decomposition()
	if base, _ := utf8.DecodeRune(d); len(d) > 0 && base != r {
		return looksLike(base)
	}
	return ""
}

// script is a row of scripts.
type script int

const (
	otherScript script = iota
	noScript           // what letters of all scripts share
	latin
	greek
	cyrillic
	armenian
	georgian
	firstFar // those below look nothing like Latin
)

// scriptSet is a set of scripts, one a bit.
type scriptSet uint64

func (s scriptSet) with(one script) scriptSet { return s | 1<<one }

// one reports whether there is exactly one.
func (s scriptSet) one() bool { return s != 0 && s&(s-1) == 0 }

// scripts are those that a name may be written in. A word of one of them that has letters of its own stands as it is.
// Those in which nearly all letters look like Latin ones (Cherokee, Lisu, Coptic) are left out.
var scripts = []struct {
	script script
	name   string
	tables []*unicode.RangeTable
}{
	{noScript, "", []*unicode.RangeTable{unicode.Common, unicode.Inherited}},
	{latin, "Latin", []*unicode.RangeTable{unicode.Latin}},
	{greek, "Greek", []*unicode.RangeTable{unicode.Greek}},
	{cyrillic, "Cyrillic", []*unicode.RangeTable{unicode.Cyrillic}},
	{armenian, "Armenian", []*unicode.RangeTable{unicode.Armenian}},
	{georgian, "Georgian", []*unicode.RangeTable{unicode.Georgian}},
	{firstFar, "East Asian", []*unicode.RangeTable{unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul, unicode.Bopomofo}},
	{firstFar + 1, "Hebrew", []*unicode.RangeTable{unicode.Hebrew}},
	{firstFar + 2, "Arabic", []*unicode.RangeTable{unicode.Arabic}},
	{firstFar + 3, "Devanagari", []*unicode.RangeTable{unicode.Devanagari}},
	{firstFar + 4, "Thai", []*unicode.RangeTable{unicode.Thai}},
	{firstFar + 5, "Bengali", []*unicode.RangeTable{unicode.Bengali}},
	{firstFar + 6, "Tamil", []*unicode.RangeTable{unicode.Tamil}},
	{firstFar + 7, "Telugu", []*unicode.RangeTable{unicode.Telugu}},
	{firstFar + 8, "Gujarati", []*unicode.RangeTable{unicode.Gujarati}},
	{firstFar + 9, "Gurmukhi", []*unicode.RangeTable{unicode.Gurmukhi}},
	{firstFar + 10, "Kannada", []*unicode.RangeTable{unicode.Kannada}},
	{firstFar + 11, "Malayalam", []*unicode.RangeTable{unicode.Malayalam}},
	{firstFar + 12, "Oriya", []*unicode.RangeTable{unicode.Oriya}},
	{firstFar + 13, "Sinhala", []*unicode.RangeTable{unicode.Sinhala}},
	{firstFar + 14, "Khmer", []*unicode.RangeTable{unicode.Khmer}},
	{firstFar + 15, "Lao", []*unicode.RangeTable{unicode.Lao}},
	{firstFar + 16, "Myanmar", []*unicode.RangeTable{unicode.Myanmar}},
	{firstFar + 17, "Tibetan", []*unicode.RangeTable{unicode.Tibetan}},
	{firstFar + 18, "Ethiopic", []*unicode.RangeTable{unicode.Ethiopic}},
}

// scriptOf is the script of a letter or mark.
func scriptOf(r rune) script {
	if r < utf8.RuneSelf {
		return latin
	}
	for _, s := range scripts {
		if unicode.In(r, s.tables...) {
			return s.script
		}
	}
	return otherScript
}

func (s script) name() string {
	for _, row := range scripts {
		if row.script == s {
			return row.name
		}
	}
	return ""
}

// lookalikes is sorted. It is the part of Unicode's confusables.txt (© Unicode, Inc., Unicode License v3) whose
// counterpart is ASCII, without what has a compatibility form (full width, mathematical), which is found by that, and
// with small capitals, letters in boxes and flag letters added.
var lookalikes = []lookalike{
	{0xd7, "x"}, {0x131, "i"}, {0x184, "b"}, {0x18d, "g"}, {0x196, "l"}, {0x1a6, "R"}, {0x1a7, "2"}, {0x1b7, "3"},
	{0x1bc, "5"}, {0x1bd, "s"}, {0x1c0, "l"}, {0x1c1, "||"}, {0x1c3, "!"}, {0x21c, "3"}, {0x222, "8"}, {0x223, "8"},
	{0x241, "?"}, {0x251, "a"}, {0x261, "g"}, {0x262, "g"}, {0x263, "y"}, {0x269, "i"}, {0x26a, "i"}, {0x26f, "w"},
	{0x274, "n"}, {0x280, "r"}, {0x28b, "u"}, {0x28f, "y"}, {0x294, "?"}, {0x299, "b"}, {0x29c, "h"}, {0x29f, "l"},
	{0x2a3, "dz"}, {0x2a6, "ts"}, {0x2aa, "ls"}, {0x2ab, "lz"}, {0x2b9, "'"}, {0x2ba, `"`}, {0x2bb, "'"}, {0x2bc, "'"},
	{0x2bd, "'"}, {0x2be, "'"}, {0x2c2, "<"}, {0x2c3, ">"}, {0x2c4, "^"}, {0x2c6, "^"}, {0x2c8, "'"}, {0x2ca, "'"},
	{0x2cb, "'"}, {0x2d0, ":"}, {0x2d7, "-"}, {0x2ee, `"`}, {0x2f4, "'"}, {0x2f6, `"`}, {0x2f8, ":"}, {0x37f, "J"},
	{0x391, "A"}, {0x392, "B"}, {0x395, "E"}, {0x396, "Z"}, {0x397, "H"}, {0x399, "l"}, {0x39a, "K"}, {0x39c, "M"},
	{0x39d, "N"}, {0x39f, "O"}, {0x3a1, "P"}, {0x3a4, "T"}, {0x3a5, "Y"}, {0x3a7, "X"}, {0x3b1, "a"}, {0x3b3, "y"},
	{0x3b9, "i"}, {0x3bd, "v"}, {0x3bf, "o"}, {0x3c1, "p"}, {0x3c3, "o"}, {0x3c5, "u"}, {0x3dc, "F"}, {0x3e8, "2"},
	{0x3f3, "j"}, {0x3fa, "M"}, {0x405, "S"}, {0x406, "l"}, {0x408, "J"}, {0x410, "A"}, {0x412, "B"}, {0x415, "E"},
	{0x417, "3"}, {0x41a, "K"}, {0x41c, "M"}, {0x41d, "H"}, {0x41e, "O"}, {0x420, "P"}, {0x421, "C"}, {0x422, "T"},
	{0x423, "Y"}, {0x425, "X"}, {0x42c, "b"}, {0x430, "a"}, {0x431, "6"}, {0x433, "r"}, {0x435, "e"}, {0x43e, "o"},
	{0x440, "p"}, {0x441, "c"}, {0x443, "y"}, {0x445, "x"}, {0x455, "s"}, {0x456, "i"}, {0x458, "j"}, {0x461, "w"},
	{0x474, "V"}, {0x475, "v"}, {0x4ae, "Y"}, {0x4af, "y"}, {0x4bb, "h"}, {0x4bd, "e"}, {0x4c0, "l"}, {0x4cf, "i"},
	{0x4d4, "AE"}, {0x4d5, "ae"}, {0x4e0, "3"}, {0x501, "d"}, {0x50c, "G"}, {0x51b, "q"}, {0x51c, "W"}, {0x51d, "w"},
	{0x54d, "U"}, {0x54f, "S"}, {0x555, "O"}, {0x55a, "'"}, {0x55d, "'"}, {0x561, "w"}, {0x563, "q"}, {0x566, "q"},
	{0x570, "h"}, {0x578, "n"}, {0x57c, "n"}, {0x57d, "u"}, {0x581, "g"}, {0x584, "f"}, {0x585, "o"}, {0x589, ":"},
	{0x5c0, "l"}, {0x5c3, ":"}, {0x5d5, "l"}, {0x5d8, "v"}, {0x5d9, "'"}, {0x5df, "l"}, {0x5e1, "o"}, {0x5f0, "ll"},
	{0x5f2, `"`}, {0x5f3, "'"}, {0x5f4, `"`}, {0x60d, ","}, {0x627, "l"}, {0x647, "o"}, {0x66b, ","}, {0x66d, "*"},
	{0x6be, "o"}, {0x6c1, "o"}, {0x6d4, "-"}, {0x6d5, "o"}, {0x701, "."}, {0x702, "."}, {0x703, ":"}, {0x704, ":"},
	{0x7ca, "l"}, {0x7f4, "'"}, {0x7f5, "'"}, {0x7fa, "_"}, {0x97d, "?"}, {0xb20, "O"}, {0xd20, "o"}, {0x101d, "o"},
	{0x10e7, "y"}, {0x10ff, "o"}, {0x1200, "U"}, {0x12d0, "O"}, {0x13a0, "D"}, {0x13a1, "R"}, {0x13a2, "T"},
	{0x13a5, "i"}, {0x13a9, "Y"}, {0x13aa, "A"}, {0x13ab, "J"}, {0x13ac, "E"}, {0x13ae, "?"}, {0x13b3, "W"},
	{0x13b7, "M"}, {0x13bb, "H"}, {0x13bd, "Y"}, {0x13c0, "G"}, {0x13c2, "h"}, {0x13c3, "Z"}, {0x13ce, "4"},
	{0x13cf, "b"}, {0x13d2, "R"}, {0x13d4, "W"}, {0x13d5, "S"}, {0x13d9, "V"}, {0x13da, "S"}, {0x13de, "L"},
	{0x13df, "C"}, {0x13e2, "P"}, {0x13e6, "K"}, {0x13e7, "d"}, {0x13ee, "6"}, {0x13f3, "G"}, {0x13f4, "B"},
	{0x1400, "="}, {0x142f, "V"}, {0x1433, ">"}, {0x1438, "<"}, {0x144a, "'"}, {0x144c, "U"}, {0x146d, "P"},
	{0x146f, "d"}, {0x1472, "b"}, {0x148d, "J"}, {0x14aa, "L"}, {0x14bf, "2"}, {0x1541, "x"}, {0x157c, "H"},
	{0x157d, "x"}, {0x1587, "R"}, {0x15af, "b"}, {0x15b4, "F"}, {0x15c5, "A"}, {0x15de, "D"}, {0x15ea, "D"},
	{0x15f0, "M"}, {0x15f7, "B"}, {0x166d, "X"}, {0x166e, "x"}, {0x16b2, "<"}, {0x16b7, "X"}, {0x16c1, "l"},
	{0x16cc, "'"}, {0x16d5, "K"}, {0x16d6, "M"}, {0x16ec, ":"}, {0x16ed, "+"}, {0x1735, "/"}, {0x1803, ":"},
	{0x1809, ":"}, {0x1cd3, `"`}, {0x1d00, "a"}, {0x1d04, "c"}, {0x1d05, "d"}, {0x1d07, "e"}, {0x1d0a, "j"},
	{0x1d0b, "k"}, {0x1d0d, "m"}, {0x1d0f, "o"}, {0x1d11, "o"}, {0x1d18, "p"}, {0x1d1b, "t"}, {0x1d1c, "u"},
	{0x1d20, "v"}, {0x1d21, "w"}, {0x1d22, "z"}, {0x1d26, "r"}, {0x1d6b, "ue"}, {0x1d83, "g"}, {0x1d8c, "y"},
	{0x1e9d, "f"}, {0x1eff, "y"}, {0x2010, "-"}, {0x2012, "-"}, {0x2013, "-"}, {0x2016, "||"}, {0x2018, "'"},
	{0x2019, "'"}, {0x201a, ","}, {0x201b, "'"}, {0x201c, `"`}, {0x201d, `"`}, {0x201f, `"`}, {0x2032, "'"},
	{0x2035, "'"}, {0x2039, "<"}, {0x203a, ">"}, {0x2041, "/"}, {0x2043, "-"}, {0x2044, "/"}, {0x204e, "*"},
	{0x2053, "~"}, {0x205a, ":"}, {0x20b6, "lt"}, {0x212e, "e"}, {0x2212, "-"}, {0x2215, "/"}, {0x2216, `\`},
	{0x2217, "*"}, {0x221e, "oo"}, {0x2223, "l"}, {0x2225, "||"}, {0x2228, "v"}, {0x222a, "U"}, {0x2236, ":"},
	{0x223c, "~"}, {0x226a, "<<"}, {0x226b, ">>"}, {0x22a4, "T"}, {0x22c1, "v"}, {0x22c3, "U"}, {0x22ff, "E"},
	{0x2373, "i"}, {0x2374, "p"}, {0x237a, "a"}, {0x23fd, "l"}, {0x2571, "/"}, {0x2573, "X"}, {0x2768, "("},
	{0x2769, ")"}, {0x276e, "<"}, {0x276f, ">"}, {0x2772, "("}, {0x2773, ")"}, {0x2774, "{"}, {0x2775, "}"},
	{0x2795, "+"}, {0x2796, "-"}, {0x27cb, "/"}, {0x27cd, `\`}, {0x27d9, "T"}, {0x292b, "x"}, {0x292c, "x"},
	{0x29f5, `\`}, {0x29f8, "/"}, {0x29f9, `\`}, {0x2a20, ">>"}, {0x2a2f, "x"}, {0x2afb, "///"}, {0x2afd, "//"},
	{0x2c85, "r"}, {0x2c8e, "H"}, {0x2c92, "l"}, {0x2c94, "K"}, {0x2c98, "M"}, {0x2c9a, "N"}, {0x2c9e, "O"},
	{0x2c9f, "o"}, {0x2ca2, "P"}, {0x2ca3, "p"}, {0x2ca4, "C"}, {0x2ca5, "c"}, {0x2ca6, "T"}, {0x2ca8, "Y"},
	{0x2cac, "X"}, {0x2cba, "-"}, {0x2cc6, "/"}, {0x2cca, "9"}, {0x2ccc, "3"}, {0x2cd0, "L"}, {0x2cd2, "6"},
	{0x2d38, "V"}, {0x2d39, "E"}, {0x2d4f, "l"}, {0x2d51, "!"}, {0x2d54, "O"}, {0x2d55, "Q"}, {0x2d5d, "X"},
	{0x2e28, "(("}, {0x2e29, "))"}, {0x2e40, "="}, {0x3003, `"`}, {0x3007, "O"}, {0x3014, "("}, {0x3015, ")"},
	{0x3033, "/"}, {0x30a0, "="}, {0x30ce, "/"}, {0x31d3, "/"}, {0x31d4, `\`}, {0x4e36, `\`}, {0x4e3f, "/"},
	{0xa4d0, "B"}, {0xa4d1, "P"}, {0xa4d2, "d"}, {0xa4d3, "D"}, {0xa4d4, "T"}, {0xa4d6, "G"}, {0xa4d7, "K"},
	{0xa4d9, "J"}, {0xa4da, "C"}, {0xa4dc, "Z"}, {0xa4dd, "F"}, {0xa4df, "M"}, {0xa4e0, "N"}, {0xa4e1, "L"},
	{0xa4e2, "S"}, {0xa4e3, "R"}, {0xa4e6, "V"}, {0xa4e7, "H"}, {0xa4ea, "W"}, {0xa4eb, "X"}, {0xa4ec, "Y"},
	{0xa4ee, "A"}, {0xa4f0, "E"}, {0xa4f2, "l"}, {0xa4f3, "O"}, {0xa4f4, "U"}, {0xa4f8, "."}, {0xa4f9, ","},
	{0xa4fa, ".."}, {0xa4fd, ":"}, {0xa4ff, "="}, {0xa60e, "."}, {0xa644, "2"}, {0xa647, "i"}, {0xa698, "OO"},
	{0xa699, "oo"}, {0xa6df, "V"}, {0xa6eb, "?"}, {0xa6ef, "2"}, {0xa728, "T3"}, {0xa730, "f"}, {0xa731, "s"},
	{0xa732, "AA"}, {0xa733, "aa"}, {0xa734, "AO"}, {0xa735, "ao"}, {0xa736, "AU"}, {0xa737, "au"}, {0xa738, "AV"},
	{0xa739, "av"}, {0xa73a, "AV"}, {0xa73b, "av"}, {0xa73c, "AY"}, {0xa73d, "ay"}, {0xa74e, "OO"}, {0xa74f, "oo"},
	{0xa75a, "2"}, {0xa76a, "3"}, {0xa76e, "9"}, {0xa777, "tf"}, {0xa778, "&"}, {0xa789, ":"}, {0xa78c, "'"},
	{0xa798, "F"}, {0xa799, "f"}, {0xa79f, "u"}, {0xa7ab, "3"}, {0xa7af, "q"}, {0xa7b2, "J"}, {0xa7b3, "X"},
	{0xa7b4, "B"}, {0xab32, "e"}, {0xab35, "f"}, {0xab3d, "o"}, {0xab47, "r"}, {0xab48, "r"}, {0xab4e, "u"},
	{0xab52, "u"}, {0xab5a, "y"}, {0xab63, "uo"}, {0xab75, "i"}, {0xab81, "r"}, {0xab83, "w"}, {0xab93, "z"},
	{0xaba9, "v"}, {0xabaa, "s"}, {0xabaf, "c"}, {0xfd3e, "("}, {0xfd3f, ")"}, {0x10282, "B"}, {0x10286, "E"},
	{0x10287, "F"}, {0x1028a, "l"}, {0x10290, "X"}, {0x10292, "O"}, {0x10295, "P"}, {0x10296, "S"}, {0x10297, "T"},
	{0x1029b, "+"}, {0x102a0, "A"}, {0x102a1, "B"}, {0x102a2, "C"}, {0x102a5, "F"}, {0x102ab, "O"}, {0x102b0, "M"},
	{0x102b1, "T"}, {0x102b2, "Y"}, {0x102b4, "X"}, {0x102cf, "H"}, {0x102f5, "Z"}, {0x10301, "B"}, {0x10302, "C"},
	{0x10309, "l"}, {0x10311, "M"}, {0x10315, "T"}, {0x10317, "X"}, {0x1031a, "8"}, {0x1031f, "*"}, {0x10320, "l"},
	{0x10322, "X"}, {0x10404, "O"}, {0x10415, "C"}, {0x1041b, "L"}, {0x10420, "S"}, {0x1042c, "o"}, {0x1043d, "c"},
	{0x10448, "s"}, {0x104b4, "R"}, {0x104c2, "O"}, {0x104ce, "U"}, {0x104d2, "7"}, {0x104ea, "o"}, {0x104f6, "u"},
	{0x10513, "N"}, {0x10516, "O"}, {0x10518, "K"}, {0x1051c, "C"}, {0x1051d, "V"}, {0x10525, "F"}, {0x10526, "L"},
	{0x10527, "X"}, {0x10a50, "."}, {0x11700, "m"}, {0x11706, "v"}, {0x1170a, "w"}, {0x1170e, "w"}, {0x1170f, "w"},
	{0x118a0, "V"}, {0x118a2, "F"}, {0x118a3, "L"}, {0x118a4, "Y"}, {0x118a6, "E"}, {0x118a9, "Z"}, {0x118ac, "9"},
	{0x118ae, "E"}, {0x118af, "4"}, {0x118b2, "L"}, {0x118b5, "O"}, {0x118b8, "U"}, {0x118bb, "5"}, {0x118bc, "T"},
	{0x118c0, "v"}, {0x118c1, "s"}, {0x118c2, "F"}, {0x118c3, "i"}, {0x118c4, "z"}, {0x118c6, "7"}, {0x118c8, "o"},
	{0x118ca, "3"}, {0x118cc, "9"}, {0x118d5, "6"}, {0x118d6, "9"}, {0x118d7, "o"}, {0x118d8, "u"}, {0x118dc, "y"},
	{0x118ec, "X"}, {0x118ef, "W"}, {0x118f2, "C"}, {0x16f08, "V"}, {0x16f0a, "T"}, {0x16f16, "L"}, {0x16f28, "l"},
	{0x16f35, "R"}, {0x16f3a, "S"}, {0x16f3b, "3"}, {0x16f3f, ">"}, {0x16f40, "A"}, {0x16f42, "U"}, {0x16f43, "Y"},
	{0x1d114, "{"}, {0x1d206, "3"}, {0x1d20d, "V"}, {0x1d20f, `\`}, {0x1d212, "7"}, {0x1d213, "F"}, {0x1d216, "R"},
	{0x1d22a, "L"}, {0x1d236, "<"}, {0x1d237, ">"}, {0x1d23a, "/"}, {0x1d23b, `\`}, {0x1e8c7, "l"}, {0x1e8cb, "8"},
	{0x1f150, "A"}, {0x1f151, "B"}, {0x1f152, "C"}, {0x1f153, "D"}, {0x1f154, "E"}, {0x1f155, "F"}, {0x1f156, "G"},
	{0x1f157, "H"}, {0x1f158, "I"}, {0x1f159, "J"}, {0x1f15a, "K"}, {0x1f15b, "L"}, {0x1f15c, "M"}, {0x1f15d, "N"},
	{0x1f15e, "O"}, {0x1f15f, "P"}, {0x1f160, "Q"}, {0x1f161, "R"}, {0x1f162, "S"}, {0x1f163, "T"}, {0x1f164, "U"},
	{0x1f165, "V"}, {0x1f166, "W"}, {0x1f167, "X"}, {0x1f168, "Y"}, {0x1f169, "Z"}, {0x1f170, "A"}, {0x1f171, "B"},
	{0x1f172, "C"}, {0x1f173, "D"}, {0x1f174, "E"}, {0x1f175, "F"}, {0x1f176, "G"}, {0x1f177, "H"}, {0x1f178, "I"},
	{0x1f179, "J"}, {0x1f17a, "K"}, {0x1f17b, "L"}, {0x1f17c, "M"}, {0x1f17d, "N"}, {0x1f17e, "O"}, {0x1f17f, "P"},
	{0x1f180, "Q"}, {0x1f181, "R"}, {0x1f182, "S"}, {0x1f183, "T"}, {0x1f184, "U"}, {0x1f185, "V"}, {0x1f186, "W"},
	{0x1f187, "X"}, {0x1f188, "Y"}, {0x1f189, "Z"}, {0x1f1e6, "A"}, {0x1f1e7, "B"}, {0x1f1e8, "C"}, {0x1f1e9, "D"},
	{0x1f1ea, "E"}, {0x1f1eb, "F"}, {0x1f1ec, "G"}, {0x1f1ed, "H"}, {0x1f1ee, "I"}, {0x1f1ef, "J"}, {0x1f1f0, "K"},
	{0x1f1f1, "L"}, {0x1f1f2, "M"}, {0x1f1f3, "N"}, {0x1f1f4, "O"}, {0x1f1f5, "P"}, {0x1f1f6, "Q"}, {0x1f1f7, "R"},
	{0x1f1f8, "S"}, {0x1f1f9, "T"}, {0x1f1fa, "U"}, {0x1f1fb, "V"}, {0x1f1fc, "W"}, {0x1f1fd, "X"}, {0x1f1fe, "Y"},
	{0x1f1ff, "Z"}, {0x1f700, "QE"}, {0x1f707, "AR"}, {0x1f74c, "C"}, {0x1f75c, "sss"}, {0x1f768, "T"}, {0x1f76b, "MB"},
	{0x1f76c, "VB"},
}
