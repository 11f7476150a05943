{{/*
The receivers with the site's addresses. In: root, receivers (the shipped ones). Out: a YAML list.
An entry has the settings of the first shipped one of its kind, as subject and text, and its own.
*/}}
{{- define "nodevitals.receivers" -}}
{{- $receivers := list -}}
{{- range $shipped := .receivers -}}
  {{- $receiver := dict "name" $shipped.name -}}
  {{- range $kind, $entries := get $.root.Values.alertmanager.receivers $shipped.name | default dict -}}
    {{- $default := get $shipped $kind | default (list dict) | first -}}
    {{- $made := list -}}
    {{- range $entry := $entries -}}
      {{- $made = append $made (mergeOverwrite (deepCopy $default) $entry) -}}
    {{- end -}}
    {{- $_ := set $receiver $kind $made -}}
  {{- end -}}
  {{- $receivers = append $receivers $receiver -}}
{{- end -}}
{{- toYaml $receivers -}}
{{- end -}}

{{/* alertmanager.yaml, for the Secret. */}}
{{- define "nodevitals.alertmanagerFile" -}}
{{- $alertmanager := .Values.alertmanager -}}
{{- $config := .Files.Get (printf "files/alertmanager/%s.yaml" $alertmanager.configuration) | fromYaml -}}
{{- $_ := set $config "global" (mergeOverwrite $config.global $alertmanager.global) -}}
{{- $_ := set $config "templates" (list $alertmanager.templates) -}}
{{- $_ := set $config "receivers" (include "nodevitals.receivers" (dict "root" . "receivers" $config.receivers) | fromYamlArray) -}}
{{- range $interval := $config.time_intervals -}}
  {{- with get $alertmanager.timeIntervals $interval.name -}}
    {{- $_ := set $interval "time_intervals" . -}}
  {{- end -}}
{{- end -}}
{{- toYaml $config -}}
{{- end -}}

{{/* The spec of an AlertmanagerConfig. */}}
{{- define "nodevitals.alertmanagerConfig" -}}
{{- $alertmanager := .Values.alertmanager -}}
{{- if or $alertmanager.global $alertmanager.timeIntervals -}}
  {{- fail "alertmanager.global and alertmanager.timeIntervals: an AlertmanagerConfig has none of them. Set alertmanagerConfiguration.global of the Alertmanager object, or alertmanager.kind: Secret" -}}
{{- end -}}
{{- $config := .Files.Get (printf "files/alertmanager/%s.config.yaml" $alertmanager.configuration) | fromYaml -}}
{{- $_ := set $config "receivers" (include "nodevitals.receivers" (dict "root" . "receivers" $config.receivers) | fromYamlArray) -}}
{{- with $alertmanager.matchers -}}
  {{- $_ := set $config.route "matchers" . -}}
{{- end -}}
{{- /* Parsers of YAML 1.1 do not read a bare = as text. */ -}}
{{- toYaml $config | replace "matchType: =\n" "matchType: \"=\"\n" -}}
{{- end -}}

{{- define "nodevitals.alertmanagerMetadata" -}}
name: {{ include "nodevitals.fullname" . }}-alertmanager
namespace: {{ .Values.alertmanager.namespace | default .Release.Namespace }}
labels:
  {{- include "nodevitals.labelsAnd" (list . .Values.alertmanager.labels) | nindent 2 }}
{{- with .Values.alertmanager.annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}
