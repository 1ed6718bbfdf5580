package main

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
)

type link struct {
	line   int
	target string
}

var (
	inlineLink    = regexp.MustCompile(`\]\(<?([^)<>\s]+)>?(?:\s+"[^"]*")?\)`)
	referenceLink = regexp.MustCompile(`^\s{0,3}\[[^\]]+\]:\s+<?([^<>\s]+)>?`)
	codeSpan      = regexp.MustCompile("`[^`]*`")
	heading       = regexp.MustCompile(`^\s{0,3}#{1,6}\s+(.+?)\s*#*\s*$`)
	htmlAnchor    = regexp.MustCompile(`<a\s+(?:id|name)="([^"]+)"`)
	fence         = regexp.MustCompile("^\\s*(```|~~~)")
)

// prose calls fn for each line outside of fenced and indented code.
func prose(text string, fn func(n int, line string)) {
	open := ""
	for n, line := range strings.Split(text, "\n") {
		if m := fence.FindStringSubmatch(line); m != nil {
			switch open {
			case "":
				open = m[1]
			case m[1]:
				open = ""
			}
			continue
		}
		if open == "" && !strings.HasPrefix(line, "    ") && !strings.HasPrefix(line, "\t") {
			fn(n+1, line)
		}
	}
}

// links of a document outside of code.
func links(text string) []link {
	var found []link
	prose(text, func(n int, line string) {
		line = codeSpan.ReplaceAllString(line, "")
		for _, m := range inlineLink.FindAllStringSubmatch(line, -1) {
			found = append(found, link{n, m[1]})
		}
		if m := referenceLink.FindStringSubmatch(line); m != nil {
			found = append(found, link{n, m[1]})
		}
	})
	return found
}

// headings are the anchors of a document, made as GitHub makes them.
func headings(text string) map[string]bool {
	anchors := map[string]bool{}
	count := map[string]int{}
	prose(text, func(_ int, line string) {
		for _, m := range htmlAnchor.FindAllStringSubmatch(line, -1) {
			anchors[m[1]] = true
		}
		m := heading.FindStringSubmatch(line)
		if m == nil {
			return
		}
		anchor := slug(m[1])
		if n := count[anchor]; n > 0 {
			anchors[fmt.Sprintf("%s-%d", anchor, n)] = true
		} else {
			anchors[anchor] = true
		}
		count[anchor]++
	})
	return anchors
}

func slug(title string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(title) {
		switch {
		case r == ' ':
			b.WriteByte('-')
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			b.WriteRune(r)
		}
	}
	return b.String()
}
