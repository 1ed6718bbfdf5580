package gateway

import (
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversionscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	metav1beta1 "k8s.io/apimachinery/pkg/apis/meta/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"

	"github.com/isthmus-dev/isthmus/pkg/cache"
)

// transform says what is made of an object before it is encoded.
type transform uint8

const (
	asObject transform = iota
	asPartial
	asTable
)

// form is what a client negotiated: an encoding and a transformation.
type form struct {
	media  string // runtime.ContentTypeJSON, YAML or Protobuf
	pretty bool
	as     transform
	// metaVersion is the version of meta.k8s.io of a transformed answer.
	metaVersion schema.GroupVersion
	table       metav1.TableOptions
}

// answerShape says which transformations fit an answer.
type answerShape uint8

const (
	oneObject answerShape = iota
	manyObjects
	eventStream
)

// restrictions tells the negotiation what a kind can be served as. A client
// whose first choice is impossible gets its next one.
type restrictions struct{ kind *kind }

func (r restrictions) AllowsMediaTypeTransform(mimeType, subType string, target *schema.GroupVersionKind) bool {
	protobuf := mimeType+"/"+subType == runtime.ContentTypeProtobuf
	if target == nil {
		if protobuf {
			return r.kind.encoding == cache.Protobuf
		}
		return r.kind.encoding == cache.JSON || r.kind.known
	}
	if gv := target.GroupVersion(); gv != metav1.SchemeGroupVersion && gv != metav1beta1.SchemeGroupVersion {
		return false
	}
	switch target.Kind {
	case "Table":
		return !protobuf
	case "PartialObjectMetadata", "PartialObjectMetadataList":
		return true
	}
	return false
}

func (r restrictions) AllowsServerVersion(version string) bool {
	return version == metav1.SchemeGroupVersion.Version
}

func (restrictions) AllowsStreamSchema(s string) bool { return s == "watch" }

// negotiate chooses the form of the answer. 406 when there is none.
func (h *Handler) negotiate(r *http.Request, k *kind, shape answerShape) (form, error) {
	options, info, err := negotiation.NegotiateOutputMediaType(r, h.Codecs, restrictions{k})
	if err != nil {
		return form{}, err
	}
	f := form{media: info.MediaType, pretty: info.PrettySerializer != nil && info.Serializer == info.PrettySerializer}
	if shape == eventStream {
		f.pretty = false
		if info.StreamSerializer == nil {
			_, streams := negotiation.MediaTypesForSerializer(h.Codecs)
			return form{}, negotiation.NewNotAcceptableError(streams)
		}
	}
	if options.Convert == nil {
		return f, nil
	}
	f.metaVersion = options.Convert.GroupVersion()
	switch options.Convert.Kind {
	case "PartialObjectMetadata", "PartialObjectMetadataList":
		f.as = asPartial
		if list := options.Convert.Kind == "PartialObjectMetadataList"; list != (shape == manyObjects) {
			return form{}, notAcceptable("the answer cannot be a " + options.Convert.Kind)
		}
	case "Table":
		f.as = asTable
		f.table, err = tableOptions(r)
	}
	return f, err
}

func notAcceptable(message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    http.StatusNotAcceptable,
		Reason:  metav1.StatusReasonNotAcceptable,
		Message: message,
	}}
}

func tableOptions(r *http.Request) (metav1.TableOptions, error) {
	opts := metav1.TableOptions{}
	if err := metainternalversionscheme.ParameterCodec.DecodeParameters(r.URL.Query(), metav1.SchemeGroupVersion, &opts); err != nil {
		return opts, badRequest("%v", err)
	}
	if errs := metav1validation.ValidateTableOptions(&opts); len(errs) > 0 {
		return opts, badRequest("Unable to convert to Table as requested: %v", errs.ToAggregate())
	}
	return opts, nil
}

// acceptsGzip reads Accept-Encoding; "gzip;q=0" is a refusal.
func acceptsGzip(r *http.Request) bool {
	for _, header := range r.Header.Values("Accept-Encoding") {
		for token := range strings.SplitSeq(header, ",") {
			coding, params, _ := strings.Cut(token, ";")
			if strings.EqualFold(strings.TrimSpace(coding), "gzip") {
				q, found := strings.CutPrefix(strings.ReplaceAll(params, " ", ""), "q=")
				return !found || strings.Trim(q, "0.") != ""
			}
		}
	}
	return false
}
