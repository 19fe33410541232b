"""The project's own small schema: news, as an agency might send them.

It has what makes workloads interesting: optional and repeated parts, choices, text with markup that
nests in itself, and attributes with few values.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from peersub.workloads.xml.dtd import read_dtd
from peersub.workloads.xml.schema import Schema

__all__ = ["NEWS_DTD", "news_schema"]

NEWS_DTD: Final = """\
<!ENTITY % inline "person | organisation | place | quantity | emphasis | link | quote">
<!ENTITY % block  "paragraph | heading | list | table | figure | sidebar">

<!ELEMENT news (header?, story+)>
<!ATTLIST news language (en | de | fr | es) "en" version CDATA #IMPLIED>

<!ELEMENT header (title?, agency?, subject*, region*, keyword*, issued?, revision*)>
<!ELEMENT title (#PCDATA)>
<!ELEMENT agency (name, contact*)>
<!ELEMENT name (#PCDATA)>
<!ELEMENT contact (name?, (telephone | mail)+)>
<!ELEMENT telephone (#PCDATA)>
<!ELEMENT mail (#PCDATA)>
<!ELEMENT subject (#PCDATA)>
<!ATTLIST subject scheme (topic | genre | audience) #REQUIRED>
<!ELEMENT region (#PCDATA)>
<!ELEMENT keyword (#PCDATA)>
<!ELEMENT issued EMPTY>
<!ATTLIST issued urgency (low | normal | high | flash) #REQUIRED day NMTOKEN #IMPLIED>
<!ELEMENT revision (editor?, reason?)>
<!ELEMENT editor (#PCDATA)>
<!ELEMENT reason (#PCDATA | emphasis)*>

<!ELEMENT story (headline, byline?, dateline?, summary?, (%block;)*, source*)>
<!ATTLIST story section (politics | economy | sports | culture | science) #IMPLIED id ID #IMPLIED>
<!ELEMENT headline (#PCDATA | %inline;)*>
<!ELEMENT byline (person*, organisation?)>
<!ELEMENT dateline (place, day?)>
<!ELEMENT day (#PCDATA)>
<!ELEMENT summary (paragraph+)>
<!ELEMENT source (organisation | person | link)>

<!ELEMENT paragraph (#PCDATA | %inline;)*>
<!ATTLIST paragraph role (lead | body | note) #IMPLIED>
<!ELEMENT heading (#PCDATA | %inline;)*>
<!ELEMENT list (item+)>
<!ATTLIST list style (ordered | bullets) #IMPLIED>
<!ELEMENT item (%block; | %inline;)*>
<!ELEMENT table (caption?, row+)>
<!ELEMENT row (cell+)>
<!ELEMENT cell (#PCDATA | %inline;)*>
<!ATTLIST cell align (left | centre | right) #IMPLIED>
<!ELEMENT figure ((image | chart | video), caption?, credit?)>
<!ELEMENT image EMPTY>
<!ATTLIST image source CDATA #REQUIRED size (small | large) #IMPLIED>
<!ELEMENT chart (title?, series+)>
<!ELEMENT series (label?, quantity+)>
<!ELEMENT label (#PCDATA)>
<!ELEMENT video (title?, duration?)>
<!ATTLIST video source CDATA #REQUIRED>
<!ELEMENT duration (#PCDATA)>
<!ELEMENT caption (#PCDATA | %inline;)*>
<!ELEMENT credit (person | organisation)+>
<!ELEMENT sidebar (title?, (%block;)+)>

<!ELEMENT person (name, (role | organisation)*)>
<!ELEMENT role (#PCDATA)>
<!ELEMENT organisation (name, symbol?)>
<!ATTLIST organisation kind (company | agency | party | team) #IMPLIED>
<!ELEMENT symbol (#PCDATA)>
<!ELEMENT place (name, country?)>
<!ELEMENT country (#PCDATA)>
<!ELEMENT quantity (#PCDATA)>
<!ATTLIST quantity unit (money | share | length | weight) #IMPLIED>
<!ELEMENT emphasis (#PCDATA | %inline;)*>
<!ELEMENT link (#PCDATA)>
<!ATTLIST link target CDATA #REQUIRED>
<!ELEMENT quote (speaker?, (paragraph | emphasis)+)>
<!ELEMENT speaker (person | organisation)>
"""


@cache
def news_schema() -> Schema:
    """The schema that is used where none is given."""
    return read_dtd(NEWS_DTD.encode(), root="news")
