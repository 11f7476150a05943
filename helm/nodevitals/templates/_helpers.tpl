{{/* Names. All objects of a release start with nodevitals.fullname; the hub's will be <fullname>-hub. */}}
{{- define "nodevitals.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "nodevitals.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains (include "nodevitals.name" .) .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "nodevitals.name" .) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Cluster-scoped objects: two releases of one name in two namespaces must not share them. */}}
{{- define "nodevitals.clusterName" -}}
{{- printf "%s:%s" .Release.Namespace (include "nodevitals.fullname" .) -}}
{{- end -}}

{{/* Labels of every object. */}}
{{- define "nodevitals.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: nodevitals
{{ include "nodevitals.selectorLabels" . }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* What Services, monitors and policies select: the agents of this release, on all kinds of nodes. */}}
{{- define "nodevitals.selectorLabels" -}}
app.kubernetes.io/name: {{ include "nodevitals.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "nodevitals.agentLabels" -}}
{{ include "nodevitals.selectorLabels" . }}
app.kubernetes.io/component: agent
{{- end -}}
