package gateway

import (
	"fmt"
	"net/http"
	"strings"
	"unicode"

	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/isthmus-dev/isthmus/pkg/cache"
)

const (
	// maxWarning bounds one warning in bytes, maxWarnings their number: a
	// header block over 8 KiB is cut off by common proxies.
	maxWarning  = 256
	maxWarnings = 12
)

// sanitize makes text from a member fit for a header: one line, printable,
// valid UTF-8, at most limit bytes.
func sanitize(text string, limit int) string {
	text = strings.ToValidUTF8(text, "?")
	text = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, text)
	if len(text) <= limit {
		return text
	}
	cut := limit - len("...")
	for cut > 0 && text[cut]&0xC0 == 0x80 {
		cut--
	}
	return text[:cut] + "..."
}

// warnings is the text of the Warning headers for the gaps.
func warnings(gaps []cache.Gap) []string {
	var out []string
	for i, g := range gaps {
		if i == maxWarnings-1 && len(gaps) > maxWarnings {
			return append(out, fmt.Sprintf("and %d more clusters are unreachable or not loaded", len(gaps)-i))
		}
		out = append(out, sanitize(g.String(), maxWarning))
	}
	return out
}

// warn adds a Warning header for each text; kubectl prints them.
func warn(w http.ResponseWriter, texts []string) {
	for _, text := range texts {
		header, err := utilnet.NewWarningHeader(299, "-", text)
		if err != nil {
			continue // sanitize leaves nothing that the header refuses
		}
		w.Header().Add("Warning", header)
	}
}
